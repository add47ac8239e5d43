// SPDX-License-Identifier: Apache-2.0
// Tokenizers with the configurations of Llama 3, Qwen 2, Llama 2 and BERT give the ids that the `tokenizers`
// package gives (tests/golden/make_tokenizers_golden.py). labels: golden
#include <doctest/doctest.h>

#include <cstdio>

#include <dspp/data/tokenizer.hpp>
#include <laws/folder.hpp>
#include <laws/json_tree.hpp>
#include <laws/mixed_text.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Tokens = std::vector<std::int32_t>;

const std::string golden = DSPP_TESTS_DIRECTORY "/golden/";

std::string digest(const Tokens& ids) {
  data::Fnv1a sum;
  for (const std::int32_t id : ids)
    for (int byte = 0; byte < 4; ++byte)
      sum.add(std::string(1, static_cast<char>(static_cast<unsigned char>(id >> (8 * byte)))));
  char text[64];
  std::snprintf(text, sizeof text, "%zu %016llx", ids.size(), static_cast<unsigned long long>(sum.value()));
  return text;
}

std::string digest_in(const JsonTree& pair) {
  return std::to_string(pair.items[0].integer) + " " + pair.items[1].string;
}

Tokens tokens_in(const JsonTree& list) {
  Tokens tokens;
  for (const JsonTree& id : list.items) tokens.push_back(static_cast<std::int32_t>(id.integer));
  return tokens;
}

const std::string& mixed_text() {
  static const std::string text = MixedText(read_file(golden + "tokenizer_seed.txt"), std::size_t{1} << 20).text;
  return text;
}

/// Of an eighth of the text.
std::vector<std::string_view> first_blocks() {
  std::vector<std::string_view> blocks = blocks_of(mixed_text());
  blocks.resize(blocks.size() / 8);
  return blocks;
}

void check_ids(const data::Tokenizer& tokenizer, const JsonTree& expected) {
  CHECK(digest(tokenizer.encode(mixed_text())) == digest_in(*expected.find("whole")));
  data::Tokenizer::Scratch scratch;
  Tokens ids;
  for (const std::string_view block : first_blocks()) tokenizer.encode(block, scratch, ids);
  CHECK(digest(ids) == digest_in(*expected.find("blocks")));
}

void check_lines(const data::Tokenizer& tokenizer, const JsonTree& expected) {
  CHECK(tokenizer.vocabulary_size() == expected.find("size")->integer);
  Tokens around = tokenizer.text_template().before;
  around.insert(around.end(), tokenizer.text_template().after.begin(), tokenizer.text_template().after.end());
  CHECK(around == tokens_in(*expected.find("template")));
  for (const JsonTree& line : expected.find("lines")->items) {
    CAPTURE(line.items[0].string);
    const Tokens ids = tokenizer.encode(line.items[0].string);
    CHECK(ids == tokens_in(line.items[1]));
    CHECK(tokenizer.decode(ids) == line.items[2].string);
  }
}

}  // namespace

TEST_CASE("a megabyte of mixed text gives the ids of the tokenizers package, by every model") {
  const JsonTree all = json_tree(read_file(golden + "tokenizers_expected.json"), "a test");
  REQUIRE(all.items.size() == 4);
  for (const JsonTree& expected : all.items) {
    const std::string name = expected.find("name")->string;
    CAPTURE(name);
    const std::string json = read_file(golden + "tokenizers/" + name + ".json");
    const data::Tokenizer tokenizer = data::Tokenizer::parse(json, "a test");
    check_ids(tokenizer, expected);
    check_lines(tokenizer, expected);
    REQUIRE(!expected.find("variants")->items.empty());
    for (const JsonTree& variant : expected.find("variants")->items) {
      std::string changed = json;
      for (const JsonTree& change : variant.find("changes")->items) {
        CAPTURE(change.items[1].string);
        REQUIRE(changed.find(change.items[0].string) != std::string::npos);
        changed.replace(changed.find(change.items[0].string), change.items[0].string.size(), change.items[1].string);
      }
      CAPTURE(variant.find("changes")->items[0].items[1].string);
      const data::Tokenizer other = data::Tokenizer::parse(changed, "a test");
      CHECK(other.fingerprint() != tokenizer.fingerprint());
      const std::string_view last = first_blocks().back();
      const std::string_view part(mixed_text().data(),
                                  static_cast<std::size_t>(last.data() - mixed_text().data()) + last.size());
      Tokens ids = other.encode(part);
      for (const JsonTree& line : expected.find("lines")->items)
        for (const std::int32_t token : other.encode(line.items[0].string)) ids.push_back(token);
      CHECK(digest(ids) == digest_in(*variant.find("ids")));
    }
  }
}

namespace {
std::string model(const std::string& name) {
  return read_file(golden + "tokenizers/" + name + ".json");
}

/// The text with `old`, which is there once, replaced.
std::string with(std::string text, const std::string& old, const std::string& changed) {
  const std::size_t at = text.find(old);
  REQUIRE(at != std::string::npos);
  REQUIRE(text.find(old, at + 1) == std::string::npos);
  return text.replace(at, old.size(), changed);
}

std::string added(int id, const std::string& content, const char* normalized) {
  return "{\"id\":" + std::to_string(id) + ",\"content\":\"" + content +
         "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":" + normalized +
         ",\"special\":false},";
}
}  // namespace

TEST_CASE("added tokens of a model with byte_fallback are decoded with spaces for its marks, as by the package") {
  const std::string list = "\"added_tokens\":[";
  const std::string json =
      with(model("llama2"), list, list + added(2500, "<tool>", "true") + added(2501, "\u2039\u2581x>", "false"));
  const data::Tokenizer tokenizer = data::Tokenizer::parse(json, "a test");
  const Tokens ids = tokenizer.encode("hello <tool> a<tool>b X Y");
  CHECK(ids == Tokens{919, 338, 653, 2500, 564, 290, 1391, 816, 292, 328, 2128, 1528});
  CHECK(tokenizer.decode(ids) == "hello <tool> a<tool>b X Y");
  const Tokens other = tokenizer.encode("a \u2039\u2581x> b");
  CHECK(other == Tokens{564, 540, 2501, 540, 596});
  CHECK(tokenizer.decode(other) == "a \u2039 x>  b");
}

TEST_CASE("a long text that is normalized in parts has the words of the whole, also at blank lines") {
  const std::string qwen = model("qwen2");
  const std::string begin = "\"pre_tokenizer\":", end = ",\"post_processor\"";
  const std::size_t from = qwen.find(begin), to = qwen.find(end);
  std::string json =
      qwen.substr(0, from) +
      "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}" +
      qwen.substr(to);
  for (std::size_t at = 0; (at = json.find("\"normalized\":true")) != std::string::npos;)
    json.replace(at, 17, "\"normalized\":false");
  const data::Tokenizer tokenizer = data::Tokenizer::parse(json, "a test");
  for (const std::string line : {"A line of words here.\n\n", "A line here. \n", "A line here.\n \n\n"}) {
    CAPTURE(line);
    constexpr int lines = 6000;
    std::string text;
    for (int i = 0; i < lines; ++i) text += line;
    // Of each line but the last: what it has where another one follows.
    Tokens one = tokenizer.encode(line + "A"), expected;
    one.pop_back();
    for (int i = 1; i < lines; ++i) expected.insert(expected.end(), one.begin(), one.end());
    const Tokens last = tokenizer.encode(line);
    expected.insert(expected.end(), last.begin(), last.end());
    CHECK(tokenizer.encode(text) == expected);
  }
}

TEST_CASE("tokenizers that give other ids have other fingerprints, also where their tokens have the same bytes") {
  const std::string json = model("llama2");
  const auto id_of = [&](const std::string& token) {
    const std::size_t at = json.find("\"" + token + "\":") + token.size() + 3;
    return json.substr(at, json.find_first_of(",}", at) - at);
  };
  const std::string letter = id_of("A"), byte = id_of("<0x41>");
  std::string swapped = with(json, "\"A\":" + letter, "\"A\":" + byte);
  swapped = with(swapped, "\"<0x41>\":" + byte, "\"<0x41>\":" + letter);
  const data::Tokenizer one = data::Tokenizer::parse(json, "a test"), other = data::Tokenizer::parse(swapped, "a test");
  CHECK(one.encode("0A0AA") != other.encode("0A0AA"));
  CHECK(one.fingerprint() != other.fingerprint());
}
