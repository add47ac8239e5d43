// SPDX-License-Identifier: Apache-2.0
// labels: thread
#include <doctest/doctest.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include <dspp/io/safetensors.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A file with this header and that many bytes of data.
std::string safetensors(const std::string& json, std::size_t data_bytes = 0) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(static_cast<unsigned char>(json.size() >> (8 * i)));
  return out + json + std::string(data_bytes, '\x01');
}

/// The reader's sentence about a file, with every occurrence of its path written as PATH.
std::string sentence_of(const std::string& path) {
  try {
    io::SafetensorsReader reader(path);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    std::string sentence = error.what();
    for (std::size_t at; (at = sentence.find(path)) != std::string::npos;) sentence.replace(at, path.size(), "PATH");
    return sentence;
  }
  return "no error";
}

std::string sentence_about(const std::string& bytes) {
  const Folder folder;
  write_bytes(folder.file("f"), bytes);
  return sentence_of(folder.file("f"));
}

std::string one_tensor(const std::string& fields) {
  return "{\"t\":{" + fields + "}}";
}

template <class T>
std::vector<T> counting(Size count, int first = 0) {
  std::vector<T> values;
  for (Size i = 0; i < count; ++i) values.push_back(static_cast<T>(first + static_cast<int>(i)));
  return values;
}

template <class T>
std::vector<T> read_all(const io::SafetensorsReader& reader, const char* name) {
  const io::TensorEntry& tensor = reader.tensor(name);
  std::vector<T> values(static_cast<std::size_t>(tensor.count()));
  reader.read(tensor, 0, tensor.count(), values.data());
  return values;
}

}  // namespace

TEST_CASE("every element type and shape is read back as written") {
  const Folder folder;
  const std::string path = folder.file("a.safetensors");
  io::SafetensorsWriter writer(path,
                               {{"bytes", ElementType::u8, {3}},
                                {"half", ElementType::bf16, {2, 2}},
                                {"other half", ElementType::f16, {2}},
                                {"single \"quoted\" \xc3\xa9", ElementType::f32, {2, 3}},
                                {"double", ElementType::f64, {1, 1, 2}},
                                {"int", ElementType::i32, {}},
                                {"long", ElementType::i64, {2}},
                                {"none", ElementType::f32, {0, 4}}},
                               {{"format", "pt"}, {"step", "12"}});
  writer.create();
  writer.write("bytes", 0, 3, counting<std::uint8_t>(3).data());
  writer.write("half", 0, 4, counting<bf16>(4, 1).data());
  writer.write("other half", 0, 2, counting<f16>(2, 6).data());
  writer.write("single \"quoted\" \xc3\xa9", 0, 6, counting<float>(6, 2).data());
  writer.write("double", 0, 2, counting<double>(2, 3).data());
  writer.write("int", 0, 1, counting<std::int32_t>(1, -4).data());
  writer.write("long", 0, 2, counting<std::int64_t>(2, -5).data());
  writer.commit();

  const io::SafetensorsReader reader(path);
  CHECK(reader.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"step", "12"}});
  REQUIRE(reader.tensors().size() == 8);
  CHECK(read_all<std::uint8_t>(reader, "bytes") == counting<std::uint8_t>(3));
  CHECK(read_all<bf16>(reader, "half") == counting<bf16>(4, 1));
  CHECK(reader.tensor("other half").dtype == "F16");
  CHECK(read_all<f16>(reader, "other half") == counting<f16>(2, 6));
  CHECK(read_all<float>(reader, "single \"quoted\" \xc3\xa9") == counting<float>(6, 2));
  CHECK(read_all<double>(reader, "double") == counting<double>(2, 3));
  CHECK(read_all<std::int32_t>(reader, "int") == std::vector<std::int32_t>{-4});
  CHECK(read_all<std::int64_t>(reader, "long") == counting<std::int64_t>(2, -5));
  CHECK(reader.tensor("double").shape == std::vector<Size>{1, 1, 2});
  CHECK(reader.tensor("int").shape.empty());
  CHECK(reader.tensor("none").count() == 0);
}

TEST_CASE("the bytes are those of the reference implementation") {
  const Folder folder;
  const std::string path = folder.file("a.safetensors");
  io::SafetensorsWriter writer(
      path, {{"b", ElementType::u8, {2}}, {"c", ElementType::f32, {1}}, {"a", ElementType::f32, {1}}});
  writer.create();
  const float one = 1, two = 2;
  writer.write("a", 0, 1, &one);
  writer.write("c", 0, 1, &two);
  writer.write("b", 0, 2, counting<std::uint8_t>(2, 8).data());
  writer.commit();
  // safetensors.torch.save_file({"b": uint8 [8, 9], "c": [2.], "a": [1.]}, path, metadata={"format": "pt"}), version
  // 0.8.0
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})";
  const std::string padded = json + std::string((8 - json.size() % 8) % 8, ' ');
  CHECK(read_file(path) == safetensors(padded) + std::string("\0\0\x80\x3f\0\0\0\x40\x08\x09", 10));
}

TEST_CASE("ranks write their own elements, and the file appears complete") {
  for (const int ranks : {1, 2, 3, 4}) {
    const Folder folder;
    const std::string path = folder.file("a.safetensors");
    write_bytes(path, "the old one");
    constexpr Size rows = 13, columns = 7;
    std::barrier sync(ranks);
    const auto work = [&](int rank) {
      io::SafetensorsWriter writer(path, {{"w", ElementType::f32, {rows, columns}}, {"b", ElementType::f32, {rows}}});
      if (rank == 0) writer.create();
      sync.arrive_and_wait();
      for (Size row = rank; row < rows; row += ranks) {
        writer.write("w", row * columns, columns, counting<float>(columns, static_cast<int>(row * columns)).data());
        writer.write("b", row, 1, counting<float>(1, static_cast<int>(row)).data());
      }
      writer.flush();
      sync.arrive_and_wait();
      if (rank == 0) {
        CHECK(read_file(path) == "the old one");
        writer.commit();
      }
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
    for (std::thread& thread : threads) thread.join();
    const io::SafetensorsReader reader(path);
    CHECK(read_all<float>(reader, "w") == counting<float>(rows * columns));
    CHECK(read_all<float>(reader, "b") == counting<float>(rows));
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);  // no other file is left
  }
}

TEST_CASE("a writer that does not commit leaves nothing, and an earlier file stays") {
  const Folder folder;
  write_bytes(folder.file("a"), "the old one");
  {
    io::SafetensorsWriter writer(folder.file("a"), {{"t", ElementType::f32, {4}}});
    writer.create();
    CHECK(fs::exists(folder.file("a.partial")));
  }
  CHECK_FALSE(fs::exists(folder.file("a.partial")));
  CHECK(read_file(folder.file("a")) == "the old one");
}

TEST_CASE("elements are read by ranges, and converted on demand") {
  const Folder folder;
  io::SafetensorsWriter writer(folder.file("a"), {{"d", ElementType::f64, {10000}},
                                                  {"h", ElementType::bf16, {3}},
                                                  {"f", ElementType::f16, {4}},
                                                  {"i", ElementType::i32, {1}}});
  writer.create();
  std::vector<double> values(10000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / static_cast<double>(i + 1);
  writer.write("d", 0, 10000, values.data());
  writer.write("h", 0, 3, counting<bf16>(3, 5).data());
  writer.write("f", 0, 4, counting<f16>(4, 2001).data());
  writer.commit();
  const io::SafetensorsReader reader(folder.file("a"));
  double two[2];
  reader.read(reader.tensor("d"), 4095, 2, two);
  CHECK(two[0] == values[4095]);
  CHECK(two[1] == values[4096]);
  std::vector<float> singles(9990);
  reader.read_as(reader.tensor("d"), 10, 9990, singles.data());
  for (std::size_t i = 0; i < singles.size(); ++i) REQUIRE(singles[i] == static_cast<float>(values[i + 10]));
  bf16 halves[2];
  reader.read_as(reader.tensor("d"), 2, 2, halves);
  CHECK(halves[0].bits == bf16(1.0f / 3).bits);
  double wide[3];
  reader.read_as(reader.tensor("h"), 0, 3, wide);
  CHECK(wide[2] == 7.0);
  f16 other_halves[2];
  reader.read_as(reader.tensor("d"), 2, 2, other_halves);
  CHECK(other_halves[0].bits == f16(1.0f / 3).bits);
  bf16 narrower[2];
  reader.read_as(reader.tensor("f"), 2, 2, narrower);
  CHECK(narrower[0] == 2000.0f);  // 2003 with 8 bits of precision
}

TEST_CASE("a matrix is read transposed, in ranges that begin and end anywhere, from any type") {
  const Folder folder;
  constexpr Size rows = 5, columns = 7;
  const auto check = [&]<class From>(ElementType type, From) {
    io::SafetensorsWriter writer(folder.file("a"), {{"m", type, {rows, columns}}, {"v", type, {3}}});
    writer.create();
    writer.write("m", 0, rows * columns, counting<From>(rows * columns).data());
    writer.commit();
    const io::SafetensorsReader reader(folder.file("a"));
    const io::TensorEntry& m = reader.tensor("m");
    Size elements = 0;
    for (Size first = 0; first <= rows * columns; ++first)
      for (Size count = 0; first + count <= rows * columns; ++count) {
        std::vector<float> run(static_cast<std::size_t>(count), -1);
        reader.read_transposed_as(m, first, count, run.data());
        elements += count;
        for (Size k = 0; k < count; ++k) {
          const Size column = (first + k) / rows, row = (first + k) % rows;
          REQUIRE(run[static_cast<std::size_t>(k)] == static_cast<float>(row * columns + column));
        }
      }
    CHECK(reader.bytes_read() == elements * static_cast<Size>(sizeof(From)));
    float out[4];
    CHECK_THROWS_AS(reader.read_transposed_as(m, 34, 2, out), Error);
    CHECK_THROWS_WITH_AS(reader.read_transposed_as(reader.tensor("v"), 0, 3, out),
                         "dspp: read_transposed_as needs a matrix, but \"v\" has 1 dimensions. Use read_as.", Error);
  };
  check(ElementType::f64, double{});
  check(ElementType::f32, float{});
  check(ElementType::bf16, bf16{});
  check(ElementType::f16, f16{});
}

TEST_CASE("unaligned data is read: a header of any length, as from older writers") {
  const Folder folder;
  std::string bytes = safetensors(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})");
  REQUIRE(bytes.size() % 4 != 0);
  bytes += std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  write_bytes(folder.file("a"), bytes);
  const io::SafetensorsReader reader(folder.file("a"));
  reader.will_need(reader.tensor("t"), 0, 2);
  CHECK(reader.bytes_read() == 0);
  CHECK(read_all<float>(reader, "t") == std::vector<float>{1, 2});
  CHECK(reader.bytes_read() == 8);
  double wide[2];
  reader.read_as(reader.tensor("t"), 1, 1, wide);
  CHECK(wide[0] == 2);
}

TEST_CASE("reading and writing outside a tensor, of another type or name gives a sentence") {
  const Folder folder;
  const std::string path = folder.file("a");
  io::SafetensorsWriter writer(path, {{"t", ElementType::f32, {4}}});
  const float values[4] = {};
  CHECK_THROWS_AS(writer.write("t", 0, 4, values), Error);  // create() was not called
  CHECK_THROWS_WITH_AS(writer.commit(),
                       "dspp: SafetensorsWriter needs create() before commit(), but it was not called here. Commit "
                       "where it was created.",
                       Error);
  writer.create();
  CHECK_THROWS_WITH_AS(writer.write("t", 1, 4, values),
                       "dspp: tensor \"t\" needs elements in [0, 4), but was asked for 4 from 1 on. Check the slice.",
                       Error);
  CHECK_THROWS_AS(writer.write("t", -1, 1, values), Error);
  CHECK_THROWS_AS(writer.write("t", INT64_MAX, 4, values), Error);
  CHECK_THROWS_WITH_AS(writer.write("u", 0, 1, values),
                       "dspp: SafetensorsWriter needs a name it was made with, but \"u\" is none. Add it to the list.",
                       Error);
  const double wide[1] = {};
  CHECK_THROWS_WITH_AS(writer.write("t", 0, 1, wide),
                       "dspp: SafetensorsWriter needs \"t\" as F32, but got F64. Cast it first.", Error);
  writer.commit();
  const io::SafetensorsReader reader(path);
  double out[4];
  CHECK_THROWS_WITH_AS(reader.read(reader.tensor("t"), 0, 4, out),
                       ("dspp: '" + path + "' needs \"t\" as F64, but it is F32. Convert the file.").c_str(), Error);
  CHECK_THROWS_WITH_AS(
      reader.tensor("u"),
      ("dspp: '" + path + "' needs a tensor \"u\", but has none of that name among 1. Is it of another model?").c_str(),
      Error);
  CHECK_THROWS_AS(reader.read_as(reader.tensor("t"), 3, 2, out), Error);
}

TEST_CASE("a list of tensors that no file can hold is refused") {
  using Specs = std::vector<io::TensorSpec>;
  CHECK_THROWS_WITH_AS(io::lay_out_safetensors(Specs{{"a", ElementType::f32, {1}}, {"a", ElementType::f64, {1}}}),
                       "dspp: a safetensors file needs every name once, but \"a\" comes twice.", Error);
  CHECK_THROWS_AS(io::lay_out_safetensors(Specs{{"__metadata__", ElementType::f32, {1}}}), Error);
  CHECK_THROWS_AS(io::lay_out_safetensors(Specs{{"\xff", ElementType::f32, {1}}}), Error);
  CHECK_THROWS_AS(io::lay_out_safetensors(Specs{{"a", ElementType::f32, {-1}}}), Error);
  CHECK_THROWS_AS(io::lay_out_safetensors(Specs{{"a", ElementType::f32, {-1, -1}}}), Error);
  CHECK_THROWS_AS(io::lay_out_safetensors(Specs{{"a", ElementType::f32, {Size{1} << 40, Size{1} << 40}}}), Error);
  CHECK_THROWS_AS(io::lay_out_safetensors(Specs{{"a", ElementType::u8, {INT64_MAX}}, {"b", ElementType::u8, {1}}}),
                  Error);
}

TEST_CASE("a header with the format's other types is read; their elements are not") {
  const Folder folder;
  write_bytes(folder.file("a"), safetensors(R"({"h":{"dtype":"I16","shape":[2],"data_offsets":[0,4],"more":1}}  )", 4));
  const io::SafetensorsReader reader(folder.file("a"));
  CHECK(reader.tensor("h").dtype == "I16");
  CHECK_FALSE(reader.tensor("h").type().has_value());
  float out[2];
  CHECK_THROWS_AS(reader.read(reader.tensor("h"), 0, 2, out), Error);
  CHECK_THROWS_AS(reader.read_as(reader.tensor("h"), 0, 2, out), Error);
}

TEST_CASE("a file without tensors is valid") {
  CHECK(sentence_about(safetensors("{}")) == "no error");
  CHECK(sentence_about(safetensors(R"({"__metadata__":{}}   )")) == "no error");
}

TEST_CASE("a malformed file is refused in a sentence") {
  const std::string begin = "dspp: the header of 'PATH' needs ", again = ". Write the file again.";
  const std::string name_another = ". Name a safetensors file.";
  CHECK(sentence_about("") == begin + "8 bytes with its length, but the file has 0" + name_another);
  CHECK(sentence_about("1234567") == begin + "8 bytes with its length, but the file has 7" + name_another);
  CHECK(sentence_about("plain text, no tensors") ==
        begin + "at most 100000000 bytes, but it claims 7310503753715641456" + name_another);
  CHECK(sentence_about(std::string("\x40\0\0\0\0\0\0\0{}", 10)) ==
        begin + "64 bytes, but the file ends after 2" + name_another);
  CHECK(sentence_about(std::string(8, '\0')) == begin + "to begin with '{', but it does not" + name_another);
  CHECK(sentence_about(safetensors(" {}")) == begin + "to begin with '{', but it does not" + name_another);
  CHECK(sentence_about(safetensors("{\"a\"")) == begin + "valid JSON, but byte 4 is past the end" + again);
  CHECK(sentence_about(safetensors("{} x")) == begin + "valid JSON, but byte 3 comes after the end" + again);
  CHECK(sentence_about(safetensors("{\"\xff\":1}")) == begin + "valid JSON, but byte 2 is not UTF-8" + again);

  const auto tensor = [&](const std::string& fields, std::size_t bytes) {
    return sentence_about(safetensors(one_tensor(fields), bytes));
  };
  const std::string good = R"("dtype":"F32","shape":[2,3],"data_offsets":[0,24])";
  CHECK(tensor(good, 24) == "no error");
  CHECK(tensor(good, 23) == begin + "24 bytes of data, but the file has 23: it is cut off" + again);
  CHECK(tensor(good, 25) == begin + "24 bytes of data, but the file has 25" + again);
  CHECK(tensor(good + "," + good, 24) ==
        begin + "valid JSON, but byte 5 opens an object that names \"data_offsets\" twice" + again);
  CHECK(sentence_about(safetensors("{\"t\":{" + good + "},\"t\":{" + good + "}}", 24)) ==
        begin + "valid JSON, but byte 0 opens an object that names \"t\" twice" + again);
  CHECK(tensor(R"("dtype":"F33","shape":[],"data_offsets":[0,4])", 4) ==
        begin + "a dtype that the format knows, but \"t\" has \"F33\"" + again);
  CHECK(tensor(R"("shape":[],"data_offsets":[0,4])", 4) ==
        begin + "a dtype for every tensor, but \"t\" has none" + again);
  CHECK(tensor(R"("dtype":"F32","data_offsets":[0,4])", 4) ==
        begin + "shape of whole numbers, but \"t\" has none" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[1])", 4) ==
        begin + "data_offsets of whole numbers, but \"t\" has none" + again);
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[9223372036854775808]"})
    CHECK(tensor(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + std::string(shape), 4) ==
          begin + "shape of whole numbers, but those of \"t\" are not, or too large" + again);
  for (const char* offsets : {"[-4,0]", "[0,4.0]", "[0,4e0]", "[0.5,4.5]", "[0,\"4\"]", "[0,9223372036854775808]"})
    CHECK(tensor(R"("dtype":"F32","shape":[1],"data_offsets":)" + std::string(offsets), 4) ==
          begin + "data_offsets of whole numbers, but those of \"t\" are not, or too large" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 4) ==
        begin + "8 bytes of data, but the file has 4: it is cut off" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[9223372036854775803,9223372036854775807])", 4) ==
        begin +
            "tensors without gap or overlap, but \"t\" begins at byte 9223372036854775803 and the one before it "
            "ends at 0" +
            again);
  CHECK(tensor(R"("dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0])", 0) ==
        begin + "shapes that fit 63 bits, but that of \"t\" does not" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0) ==
        begin + "shapes that fit 63 bits, but that of \"t\" does not" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4) ==
        begin + "data_offsets that fit the shape, but \"t\" has 4 bytes for a shape of 8" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[0],"data_offsets":[4,0])", 4) ==
        begin + "data_offsets [begin, end], but those of \"t\" are not in order" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])", 4) ==
        begin + "data_offsets [begin, end], but those of \"t\" are not in order" + again);
  CHECK(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", 8) ==
        begin + "tensors without gap or overlap, but \"t\" begins at byte 4 and the one before it ends at 0" + again);
  const std::string overlapping = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                  R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  CHECK(sentence_about(safetensors(overlapping, 6)) ==
        begin + "tensors without gap or overlap, but \"b\" begins at byte 2 and the one before it ends at 4" + again);
  CHECK(sentence_about(safetensors("{\"t\":[]}")) ==
        begin + "an object for every tensor, but \"t\" has another value" + again);
  CHECK(sentence_about(safetensors("{\"__metadata__\":[]}")) ==
        begin + "__metadata__ that is an object, but it is another value" + again);
  CHECK(sentence_about(safetensors("{\"__metadata__\":{\"a\":1}}")) ==
        begin + "strings in __metadata__, but \"a\" is none" + again);
}

TEST_CASE("a path that cannot be opened gives a sentence with the system's reason") {
  const Folder folder;
  CHECK(sentence_of(folder.file("absent")) ==
        "dspp: File needs 'PATH' to read, but the system says: No such file or directory. Check the path, its "
        "permissions and the disk.");
  CHECK(sentence_of(folder.path.string()) ==
        "dspp: File needs 'PATH' to read, but the system says: Is a directory. Check the path, its permissions and the "
        "disk.");
  io::SafetensorsWriter writer(folder.file("absent/a"), {{"t", ElementType::f32, {1}}});
  CHECK_THROWS_AS(writer.create(), Error);
}

TEST_CASE("a file with any one byte changed or its end cut off is read or refused, without a crash") {
  const Folder folder;
  const std::string path = folder.file("a");
  const std::string good =
      safetensors(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}})",
                  12);
  int refused = 0, harmless = 0;
  const auto attempt = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    try {
      const io::SafetensorsReader reader(path);
      Size read = 0;
      for (const io::TensorEntry& tensor : reader.tensors()) {
        if (tensor.type() == ElementType::f32) read += std::ssize(read_all<float>(reader, tensor.name.c_str()));
        if (tensor.type() == ElementType::bf16) read += std::ssize(read_all<bf16>(reader, tensor.name.c_str()));
      }
      CHECK(read <= 12);
      ++harmless;
    } catch (const Error&) {
      ++refused;
    }
  };
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int bit : {0, 3, 5, 7}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1u << bit));
      attempt(bytes);
    }
    attempt(good.substr(0, at));
  }
  CHECK(harmless > 0);  // in a name, or in the data
  CHECK(refused > 4 * harmless);
}

TEST_CASE("files that the reference implementation wrote are written again byte for byte") {
  const Folder folder;
  const fs::path golden = fs::path(__FILE__).parent_path().parent_path() / "golden";
  for (const char* name : {"gpt2_weights.safetensors", "gpt2_expected.safetensors", "ops_expected.safetensors"}) {
    const io::SafetensorsReader reader((golden / name).string());
    std::vector<io::TensorSpec> specs;
    for (const io::TensorEntry& tensor : reader.tensors())
      specs.push_back({tensor.name, tensor.type().value(), tensor.shape});
    std::reverse(specs.begin(), specs.end());
    io::SafetensorsWriter writer(folder.file(name), specs, reader.metadata());
    writer.create();
    const auto copy = [&]<class T>(const io::TensorEntry& tensor, T) {
      writer.write(tensor.name, 0, tensor.count(), read_all<T>(reader, tensor.name.c_str()).data());
    };
    for (const io::TensorEntry& tensor : reader.tensors()) {
      if (tensor.type() == ElementType::f64) copy(tensor, double{});
      if (tensor.type() == ElementType::f32) copy(tensor, float{});
      if (tensor.type() == ElementType::bf16) copy(tensor, bf16{});
      if (tensor.type() == ElementType::i32) copy(tensor, std::int32_t{});
    }
    writer.commit();
    CHECK(read_file(folder.file(name)) == read_file((golden / name).string()));
  }
}

TEST_CASE("a matrix of 2^47 rows without a column is read at once: it is empty") {
  const Folder folder;
  for (const char* shape : {"[211106198978564,0]", "[0,211106198978564]"}) {
    const std::string json = R"({"t":{"dtype":"F32","shape":)" + std::string(shape) + R"(,"data_offsets":[0,0]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(json.size());
    const io::SafetensorsReader file(folder.write("a", bytes + json));
    float none = 0;
    file.read(file.tensor("t"), 0, 0, &none);
    file.read_as<double>(file.tensor("t"), 0, 0, nullptr);
    file.read_transposed_as(file.tensor("t"), 0, 0, &none);
    CHECK_THROWS_AS(file.read_transposed_as(file.tensor("t"), 0, 1, &none), Error);
    CHECK(none == 0);
  }
}
