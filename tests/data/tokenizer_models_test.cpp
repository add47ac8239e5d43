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
