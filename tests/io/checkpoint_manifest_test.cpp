// SPDX-License-Identifier: Apache-2.0
// state.json: a manifest reads back as written, and anything else is refused; files are verified chunk by chunk.
#include <doctest/doctest.h>

#include <limits>

#include <dspp/io/checkpoint_manifest.hpp>
#include <laws/folder.hpp>
#include <laws/sentence.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Bytes that differ from chunk to chunk.
std::string some_bytes(Size count) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7 ^ i);
  return bytes;
}

/// The checksums of the bytes, from shares that two ranks added in any order.
io::CheckpointFile described(const std::string& name, const std::string& bytes, Size piece) {
  io::ChecksumShares even(std::ssize(bytes)), odd(std::ssize(bytes));
  for (Size end = std::ssize(bytes), number = 0; end > 0; end -= piece, ++number) {
    const Size begin = std::max<Size>(0, end - piece);
    (number % 2 == 0 ? even : odd).add(begin, bytes.data() + begin, end - begin);
  }
  io::CheckpointFile file{name, std::ssize(bytes), {}};
  for (Size chunk = 0; chunk < io::CheckpointFile::chunks_of(file.bytes); ++chunk) {
    const auto c = static_cast<std::size_t>(chunk);
    file.checksums.push_back(crc32c_of_zeros(file.chunk_end(chunk) - chunk * io::checkpoint_chunk_bytes) ^
                             even.shares()[c] ^ odd.shares()[c]);
  }
  return file;
}

}  // namespace

TEST_CASE("combined shares are the checksums of the chunks, and every chunk is verified by one of the readers") {
  const Folder folder;
  for (const Size bytes : {Size{0}, Size{1}, io::checkpoint_chunk_bytes, 3 * io::checkpoint_chunk_bytes + 12345}) {
    const std::string content = some_bytes(bytes);
    const std::string path = folder.write("file", content);
    for (const Size piece : {Size{1000}, Size{777'777}, io::checkpoint_chunk_bytes + 1}) {
      const io::CheckpointFile file = described("file", content, piece);
      REQUIRE(std::ssize(file.checksums) == io::CheckpointFile::chunks_of(bytes));
      for (Size c = 0; c < std::ssize(file.checksums); ++c)
        CHECK(file.checksums[static_cast<std::size_t>(c)] ==
              crc32c(content.data() + c * io::checkpoint_chunk_bytes,
                     file.chunk_end(c) - c * io::checkpoint_chunk_bytes));
      io::verify_checkpoint_file(path, file, 0, 1);
    }
  }
  std::string content = some_bytes(3 * io::checkpoint_chunk_bytes + 12345);
  const io::CheckpointFile file = described("file", content, 99'999);
  content[2 * 1048576 + 5] ^= 1;
  const std::string path = folder.write("checkpoints/bad/file", content);
  folder.write("checkpoints/good/state.json", "{}");
  const std::string load =
      "Load '" + folder.file("checkpoints/good") + "': give that path, or its last name as LoadOptions::tag.";
  for (Size reader = 0; reader < 3; ++reader) {
    const std::string sentence = sentence_of([&] { io::verify_checkpoint_file(path, file, reader, 3); });
    CHECK((sentence == "no error") == (reader != 2));
    if (reader == 2)
      CHECK(sentence == "dspp: '" + path +
                            "' needs the bytes that were saved, but those in [2097152, 3145728) have another checksum: "
                            "they were changed. " +
                            load);
  }
  folder.write("checkpoints/bad/file", content + "x");
  CHECK(sentence_of([&] { io::verify_checkpoint_file(path, file, 0, 3); }) ==
        "dspp: '" + path + "' needs the 3158073 bytes that were saved, but has 3158074. " + load);
  fs::remove(path);
  CHECK(sentence_of([&] { io::verify_checkpoint_file(path, file, 0, 3); }) ==
        "dspp: resuming needs the file '" + path + "', but it is not there. " + load);
}

TEST_CASE("the chunks of a file are counted for every size of 63 bits, and the last ends with the file") {
  constexpr Size largest = std::numeric_limits<Size>::max(), whole = largest / io::checkpoint_chunk_bytes;
  for (Size less = 0; less <= 2 * io::checkpoint_chunk_bytes; less += 1 + less % 4099) {
    const io::CheckpointFile file{"file", largest - less, {}};
    const Size chunks = io::CheckpointFile::chunks_of(file.bytes);
    REQUIRE(chunks == whole + 1 - (less + 1) / io::checkpoint_chunk_bytes);
    REQUIRE(file.chunk_end(chunks - 1) == file.bytes);
    REQUIRE(file.chunk_end(chunks - 2) == (chunks - 1) * io::checkpoint_chunk_bytes);
  }
}

TEST_CASE("a manifest reads back as written") {
  const Folder folder;
  const io::CheckpointFile first = described("a \"b\"", some_bytes(2'500'000), 1000), second{"empty", 0, {}},
                           third{"sum of 0", 4, {0}};
  const std::string text = io::checkpoint_manifest_text("{\"steps\":3}", {first, second, third});
  const io::CheckpointManifest read = io::read_checkpoint_manifest(folder.write("state.json", text));
  CHECK(read.training().find("steps")->integer == 3);
  REQUIRE(read.files.size() == 3);
  CHECK(read.file("a \"b\"", "state.json").checksums == first.checksums);
  CHECK(read.file("empty", "state.json").bytes == 0);
  CHECK(read.file("sum of 0", "state.json").checksums == third.checksums);
  CHECK(sentence_of([&] {
          read.file("none", "x/state.json");
        }).starts_with("dspp: 'x/state.json' needs an entry for 'none', but has none"));
}

TEST_CASE("a manifest of another kind is refused with the reason, even if its own checksum is right") {
  const Folder folder;
  const std::string right =
      io::unsealed_text(io::checkpoint_manifest_text("{}", {io::CheckpointFile{"file", 5, {0x1234abcd}}}), "it");
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    const std::string path = folder.write("state.json", io::sealed_text(text));
    const std::string sentence = sentence_of([&] { io::read_checkpoint_manifest(path); });
    CHECK(sentence.find("'" + path + "'") != std::string::npos);
    return sentence;
  };
  const auto check = [](const std::string& sentence, const std::string& part) {
    CHECK_MESSAGE(sentence.find(part) != std::string::npos, sentence);
  };
  check(refusal("dspp training state", "another"), "but does not say that it is one");
  check(refusal("\"version\":1", "\"version\":2"), "but has version 2 where this dspp reads 1");
  check(refusal("\"version\":1,", ""), "but has version 0 where this dspp reads 1");
  check(refusal("1048576", "4096"), "has chunks of another size");
  check(refusal("\"training\":{}", "\"training\":[]"), "does not describe the training");
  check(refusal("\"files\"", "\"filed\""), "names no files");
  check(refusal("\"files\":{", "\"files\":3,\"were\":{"), "names no files");
  check(refusal("\"bytes\":5", "\"bytes\":5.5"), "does not give the size");
  check(refusal("\"crc32c\":\"1234abcd\"", "\"crc32c\":3"), "does not give the size and the checksums");
  check(refusal("1234abcd", "1234abcd1"), "another number of checksums");
  CHECK(dspp::io::detail::checksum_of("1234abc") == -1);
  check(refusal("\"bytes\":5", "\"bytes\":-5"), "does not give the size");
  check(refusal("\"bytes\":5", "\"bytes\":2000000"), "another number of checksums than 'file' has chunks");
  check(refusal("\"bytes\":5", "\"bytes\":9223372036854775807"), "another number of checksums");
  check(refusal("1234abcd", "1234abc"), "another number of checksums");
  check(refusal("1234abcd", "1234abcX"), "that is no number");
  check(refusal("{\"format\"", "[\"format\""), "needs valid JSON");
  check(refusal(right, "17"), "does not say that it is one");
  const std::string path = folder.write("state.json", right);
  check(sentence_of([&] { io::read_checkpoint_manifest(path); }),
        "has none: it is cut off, changed, or not written by dspp");
  folder.write("state.json", io::sealed_text(right) + "\n");
  check(sentence_of([&] { io::read_checkpoint_manifest(path); }), "has none: it is cut off");
  folder.write("state.json", " " + io::sealed_text(right));
  check(sentence_of([&] { io::read_checkpoint_manifest(path); }), "of other bytes: it was changed");
}

TEST_CASE("the tensors in changed bytes are named and counted, adjacent ones are not") {
  const Folder folder;
  const std::string path = folder.file("a");
  {
    io::SafetensorsWriter writer(path, {{"a", ElementType::u8, {10}},
                                        {"b", ElementType::u8, {10}},
                                        {"c", ElementType::u8, {0}},
                                        {"d", ElementType::u8, {10}}});
    writer.create();
    writer.commit();
  }
  const Size data = static_cast<Size>(fs::file_size(path)) - 30;
  const auto between = [&](Size begin, Size end) {
    return dspp::io::detail::tensors_between(path, data + begin, data + end);
  };
  CHECK(between(0, 10) == ", in which 'a' lies,");
  CHECK(between(10, 20) == ", in which 'b' lies,");
  CHECK(between(15, 25) == ", in which 'b' and another tensor lie,");
  CHECK(between(9, 21) == ", in which 'a' and 2 other tensors lie,");
  CHECK(between(-5, 0) == "");
  CHECK(between(30, 35) == "");
  CHECK(dspp::io::detail::tensors_between(folder.file("absent"), 0, 1) == "");
  io::SafetensorsWriter none(folder.file("none"), {});
  none.create(), none.commit();
  CHECK(dspp::io::detail::tensors_between(folder.file("none"), 0, 1) == "");
}
