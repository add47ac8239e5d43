// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/io/safetensors_index.hpp>
#include <laws/folder.hpp>

using namespace dspp;

namespace {

std::string sentence_of(const std::string& text) {
  try {
    io::parse_safetensors_index(text, "an index");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    const std::string sentence = error.what();
    const std::string begin = "dspp: an index needs ", end = ". Download or write the folder again.";
    REQUIRE(sentence.starts_with(begin));
    if (!sentence.ends_with(end)) return sentence.substr(begin.size());
    return sentence.substr(begin.size(), sentence.size() - begin.size() - end.size());
  }
  return "no error";
}

std::string mapped_to(const std::string& file) {
  return sentence_of("{\"weight_map\":{\"w\":" + json_quoted(file) + "}}");
}

std::vector<std::string> names(const std::vector<io::SafetensorsShard>& shards) {
  std::vector<std::string> all;
  for (const auto& shard : shards) {
    all.push_back(shard.file);
    for (const auto& tensor : shard.tensors) all.push_back(tensor.name);
  }
  return all;
}

}  // namespace

TEST_CASE("an index of transformers is read, and written with the same bytes") {
  const std::string golden =
      laws::read_file(std::string(DSPP_TESTS_DIRECTORY) + "/golden/llama_sharded/model.safetensors.index.json");
  const io::SafetensorsIndex index = io::parse_safetensors_index(golden, "an index");
  CHECK(index.file_of.size() == 21);
  CHECK(index.file_of.at("lm_head.weight") == "model-00002-of-00002.safetensors");
  CHECK(index.total_bytes == 33744);
  CHECK(io::safetensors_index_text(index, index.total_bytes / 2) == golden);
}

TEST_CASE("the sizes of an index may be missing, or a number with a point") {
  const auto total = [](const std::string& metadata) {
    return io::parse_safetensors_index("{" + metadata + "\"weight_map\":{\"w\":\"a.safetensors\"}}", "an index")
        .total_bytes;
  };
  CHECK(total("") == 0);
  CHECK(total("\"metadata\":null,") == 0);
  CHECK(total("\"metadata\":{},") == 0);
  CHECK(total("\"metadata\":{\"total_size\":0},") == 0);
  CHECK(total("\"metadata\":{\"total_size\":4611686018427387904},") == Size{1} << 62);
  CHECK(total("\"metadata\":{\"total_size\":13476835328},") == 13476835328);
  CHECK(total("\"metadata\":{\"total_size\":13476835328.0},") == 13476835328);
}

TEST_CASE("an invalid index is refused in a sentence") {
  CHECK(sentence_of("[]") == "an object, but it is another value");
  CHECK(sentence_of("{}") == "a weight_map from tensors to files, but it has none");
  CHECK(sentence_of(R"({"weight_map":[]})") == "a weight_map from tensors to files, but it has none");
  CHECK(sentence_of(R"({"weight_map":{}})") == "tensors in weight_map, but there are none");
  CHECK(sentence_of(R"({"weight_map":{"w":3}})") == "names of files in weight_map, but \"w\" has 3");
  CHECK(sentence_of(R"({"weight_map":{"w":"a.safetensors","w":"b.safetensors"}})") ==
        "valid JSON, but byte 14 opens an object that names \"w\" twice. Write the file again.");
  const std::string good = R"("weight_map":{"w":"a.safetensors"}})";
  CHECK(sentence_of("{\"metadata\":[]," + good) == "metadata that is an object, but it is a list");
  for (const char* size : {"-1", "\"1\"", "null", "1e300", "-0.5", "4611686018427389000"})
    CHECK(sentence_of("{\"metadata\":{\"total_size\":" + std::string(size) + "}," + good)
              .starts_with("a total_size in bytes, but it is "));
  CHECK(sentence_of("{" + good + "}") == "valid JSON, but byte 36 comes after the end. Write the file again.");
}

TEST_CASE("no name in weight_map leads out of the folder") {
  for (const char* file : {"../a.safetensors", "/etc/a.safetensors", "b/a.safetensors", "..", ".", "", "..safetensors",
                           ".safetensors", "b\\a.safetensors", "a.bin", "a.safetensors/"}) {
    CAPTURE(file);
    CHECK(mapped_to(file) == "safetensors files of its own folder in weight_map, but \"w\" has " + json_quoted(file));
  }
  CHECK(
      sentence_of(R"({"weight_map":{"w":"a\u0000.safetensors"}})").starts_with("safetensors files of its own folder"));
  CHECK(mapped_to("a.b-1.safetensors") == "no error");
}

TEST_CASE("tensors are sharded in their order into files of a maximum size") {
  const std::vector<io::TensorSpec> tensors{{"d", ElementType::f32, {10}},
                                            {"c", ElementType::bf16, {10}},
                                            {"b", ElementType::f64, {20}},
                                            {"a", ElementType::u8, {1}}};  // 40, 20, 160 and 1 bytes
  using Names = std::vector<std::string>;
  CHECK(names(io::cut_into_shards(tensors, 221)) == Names{"model.safetensors", "d", "c", "b", "a"});
  CHECK(names(io::cut_into_shards(tensors, 220)) ==
        Names{"model-00001-of-00002.safetensors", "d", "c", "b", "model-00002-of-00002.safetensors", "a"});
  CHECK(names(io::cut_into_shards(tensors, 60)) == Names{"model-00001-of-00003.safetensors", "d", "c",
                                                         "model-00002-of-00003.safetensors", "b",
                                                         "model-00003-of-00003.safetensors", "a"});
  CHECK(io::cut_into_shards(tensors, 1).size() == 4);
  const std::vector<io::SafetensorsShard> many =
      io::cut_into_shards(std::vector<io::TensorSpec>(100'001, {"t", ElementType::u8, {1}}), 1);
  CHECK(many[9'999].file == "model-10000-of-100001.safetensors");
  CHECK(many[99'999].file == "model-100000-of-100001.safetensors");
  CHECK(names(io::cut_into_shards({}, 1)) == Names{"model.safetensors"});
  CHECK_THROWS_WITH_AS(
      io::cut_into_shards(tensors, 0),
      "dspp: shards need max_shard_bytes of at least 1, but got 0. Give it in bytes, for example 5_GiB.", Error);
}

TEST_CASE("shards are recognised by their names") {
  CHECK(io::is_shard_name("model-00001-of-00003.safetensors"));
  CHECK(io::is_shard_name("model-09090-of-10909.safetensors"));
  for (const char* other : {"model.safetensors", "model-00001-of-0003.safetensors", "model-0000a-of-00003.safetensors",
                            "model-0000.-of-00003.safetensors", "Model-00001-of-00003.safetensors",
                            "model-00001-of-00003.safetensors~", ""})
    CHECK_FALSE(io::is_shard_name(other));
}
