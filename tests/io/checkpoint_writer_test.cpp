// SPDX-License-Identifier: Apache-2.0
// A file written by two ranks in interleaved runs: a valid safetensors file, whose checksums need no second read.
#include <doctest/doctest.h>

#include <dspp/io/checkpoint_writer.hpp>
#include <dspp/io/safetensors.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("two ranks write one file in turns, whose checksums combine their shares") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  constexpr Size rows = 700, columns = 1001;
  const std::vector<io::TensorSpec> tensors{{"a", ElementType::f32, {rows, columns}}, {"b", ElementType::f64, {3}}};
  std::vector<float> a(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 1013);
  const double b[] = {1, 2, 3};
  io::FileSystem system;
  std::vector<std::vector<std::uint32_t>> shares;
  Size bytes = 0;
  for (const int writer_number : {1, 0}) {
    io::CheckpointWriter writer(path, tensors, {{"step", "3"}});
    if (shares.empty()) writer.create(system);
    writer.open(system, writer_number == 0);
    writer.write("a", [&](auto write) {
      for (Size row = writer_number; row < rows; row += 2) write(row * columns, columns, a.data() + row * columns);
    });
    if (writer_number == 1) writer.write("b", [&](auto write) { write(0, 3, b); });
    writer.close();
    shares.push_back(writer.shares());
    bytes = writer.bytes();
  }
  const std::string content = folder.read("model.safetensors");
  REQUIRE(std::ssize(content) == bytes);
  REQUIRE(shares[0].size() == 3);
  for (Size chunk = 0; chunk < 3; ++chunk) {
    const auto c = static_cast<std::size_t>(chunk);
    const Size begin = chunk * io::checkpoint_chunk_bytes, count = std::min(io::checkpoint_chunk_bytes, bytes - begin);
    CHECK((crc32c_of_zeros(count) ^ shares[0][c] ^ shares[1][c]) == crc32c(content.data() + begin, count));
  }
  const io::SafetensorsReader reader(path);
  std::vector<float> back(a.size());
  reader.read(reader.tensor("a"), 0, std::ssize(back), back.data());
  CHECK(back == a);
  double three = 0;
  reader.read(reader.tensor("b"), 2, 1, &three);
  CHECK(three == 3);
  CHECK(reader.metadata().at("step") == "3");
}
