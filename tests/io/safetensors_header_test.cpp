// SPDX-License-Identifier: Apache-2.0
// The limits of a header, each exactly and one beyond it, and the order of the layout.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include <dspp/io/safetensors.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

std::string begin_of_header(std::uint64_t bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(static_cast<unsigned char>(bytes >> (8 * i)));
  return text;
}

std::string sentence_of(const std::string& path) {
  try {
    io::SafetensorsReader reader(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string value_of(const Facts& facts, const std::string& name) {
  for (const Facts::Fact& fact : facts.all())
    if (fact.name == name) return fact.value;
  return "none";
}

}  // namespace

TEST_CASE("a header of exactly the largest size is read, and one byte more is refused") {
  const Folder folder;
  CHECK(sentence_of(folder.write("a", begin_of_header(100'000'000) + "{}"))
            .find("needs 100000000 bytes, but the file ends after 2.") != std::string::npos);
  CHECK(sentence_of(folder.write("a", begin_of_header(100'000'001) + "{}"))
            .find("needs at most 100000000 bytes, but it claims 100000001.") != std::string::npos);
}

TEST_CASE("tensors are laid out by their types, the widest first, then by name, up to the largest offset") {
  const io::SafetensorsHeader header = io::lay_out_safetensors({{"z", ElementType::f64, {1}},
                                                                {"b", ElementType::f32, {1}},
                                                                {"a", ElementType::u8, {1}},
                                                                {"a2", ElementType::f32, {1}}});
  std::string names;
  for (const io::TensorEntry& tensor : header.tensors) names += tensor.name + " ";
  CHECK(names == "z a2 b a ");
  const io::SafetensorsHeader largest = io::lay_out_safetensors({{"a", ElementType::u8, {INT64_MAX}}});
  CHECK(largest.data_bytes() == INT64_MAX);
  CHECK_THROWS_AS(io::lay_out_safetensors({{"a", ElementType::u8, {INT64_MAX}}, {"b", ElementType::u8, {1}}}), Error);
}

TEST_CASE("eight bytes that begin a pickle, or a zip file, are recognised, others are not") {
  const auto begins = [&](const std::string& text) {
    return dspp::io::detail::begins_pickled(reinterpret_cast<const unsigned char*>(text.data()));
  };
  for (const char* pickled : {"PK\3\4....", "\x80\2......", "\x80\5......"}) CHECK(begins(pickled));
  for (const char* other : {"PK\3\5....", "PK\4\4....", "Pk\3\4....", "\x80\1......", "\x80\6......", "\x81\2......"})
    CHECK_FALSE(begins(other));
  CHECK(dspp::io::detail::is_pickled_name("a/pytorch_model.bin"));
  CHECK_FALSE(dspp::io::detail::is_pickled_name("a/pytorch_model.bin.index.json"));
  CHECK_FALSE(dspp::io::detail::is_pickled_name("a/model.bin"));
}

TEST_CASE("a header with a duplicate or a wrong member is refused") {
  const auto refusal = [](const std::string& json) {
    try {
      io::parse_safetensors_header(json, 4, "a test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  CHECK(refusal("{\"t\":{" + good + "}") == "no error");
  CHECK(refusal(R"({"__metadata__":{},"t":{)" + good + R"(,"__metadata__":{}})")
            .find("byte 0 opens an object that names \"__metadata__\" twice") != std::string::npos);
  CHECK(refusal(R"({"t":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})").find("a dtype for every tensor, but \"t\"") !=
        std::string::npos);
  CHECK(refusal(R"({"t":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})").find("shape of whole numbers, but \"t\"") !=
        std::string::npos);
  const Folder folder;
  const std::string json = "{\"t\":{" + good + "}";
  const io::SafetensorsReader reader(folder.write("a", begin_of_header(json.size()) + json + "abcd"));
  float same = 0, first = 0;
  CHECK_THROWS_AS(reader.read(reader.tensor("t"), 0, -1, &same), Error);
  reader.read(reader.tensor("t"), 0, 1, &first);
  reader.read_as(reader.tensor("t"), 0, 1, &same);
  CHECK(same == first);
}

TEST_CASE("members are separated by commas, without one before the first") {
  const auto json_of = [](const std::map<std::string, std::string>& metadata, std::vector<io::TensorSpec> tensors) {
    const std::string prefix = io::safetensors_prefix(io::lay_out_safetensors(tensors, metadata)).substr(8);
    return prefix.substr(0, prefix.find_last_not_of(' ') + 1);
  };
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  CHECK(json_of({}, {}) == "{}");
  CHECK(json_of({}, {{"a", ElementType::u8, {1}}}) == "{" + a + "}");
  CHECK(json_of({{"k", "v"}}, {{"a", ElementType::u8, {1}}}) == R"({"__metadata__":{"k":"v"},)" + a + "}");
}

TEST_CASE("ranks compare a file by its size, its step if it has one, and digests that depend on every MiB") {
  const Folder folder;
  const auto facts_of = [&](const std::string& metadata, std::string data) {
    const std::string json = "{" + metadata + R"("t":{"dtype":"U8","shape":[)" + std::to_string(data.size()) +
                             R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}";
    return io::SafetensorsReader(folder.write("a", begin_of_header(json.size()) + json + data)).facts();
  };
  const std::string data(3 << 20, 'x');
  const Facts first = facts_of(R"("__metadata__":{"step":"12"},)", data);
  CHECK(value_of(first, "step") == "12");
  Digest pages;
  for (std::size_t at = 0; at < data.size(); at += 1 << 20) pages.add(data.data() + at, 4096);
  CHECK(value_of(first, "digest of the data") == digest_text(pages.value()));
  CHECK(value_of(facts_of("", data), "step") == "none");
  for (const std::size_t at : {0, 1 << 20, 2 << 20}) {
    std::string other = data;
    other[at] = 'y';
    const Facts changed = facts_of(R"("__metadata__":{"step":"12"},)", other);
    CHECK(value_of(changed, "digest of the data") != value_of(first, "digest of the data"));
    CHECK(value_of(changed, "digest of the header") == value_of(first, "digest of the header"));
  }
}
