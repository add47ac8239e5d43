// SPDX-License-Identifier: Apache-2.0
// A megabyte of mixed text gives the ids that the `tokenizers` package gives (tests/golden/README.md). labels: golden
#include <doctest/doctest.h>

#include <cstdio>

#include <dspp/data/tokenizer.hpp>
#include <laws/folder.hpp>
#include <laws/json_tree.hpp>
#include <laws/mixed_text.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const std::string golden = DSPP_TESTS_DIRECTORY "/golden/";

/// The number of ids, and their sum as in the file.
std::string digest(const std::vector<std::int32_t>& ids) {
  data::Fnv1a sum;
  for (const std::int32_t id : ids)
    for (int byte = 0; byte < 4; ++byte)
      sum.add(std::string(1, static_cast<char>(static_cast<unsigned char>(id >> (8 * byte)))));
  char text[64];
  std::snprintf(text, sizeof text, "%zu %016llx", ids.size(), static_cast<unsigned long long>(sum.value()));
  return text;
}

std::string digest_in(const JsonTree& pair, std::size_t first = 0) {
  return std::to_string(pair.items[first].integer) + " " + pair.items[first + 1].string;
}

}  // namespace

TEST_CASE("a megabyte of mixed text gives the ids of the tokenizers package") {
  const std::string seed = read_file(golden + "tokenizer_seed.txt"), json = read_file(golden + "tokenizer.json");
  const JsonTree expected = json_tree(read_file(golden + "tokenizer_expected.json"), "a test");
  const std::string text = MixedText(seed, std::size_t{1} << 20).text;
  REQUIRE(digest({reinterpret_cast<const unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(text.data()) + text.size()}) ==
          digest_in(*expected.find("text")));

  const data::Tokenizer tokenizer = data::Tokenizer::parse(json, "a test");
  const auto whole = tokenizer.encode(text);
  CHECK(digest(whole) == digest_in(*expected.find("whole")));
  CHECK(tokenizer.decode(whole) == text);

  const auto blocks = blocks_of(text);
  const JsonTree& blocks_expected = *expected.find("blocks");
  REQUIRE(blocks.size() == blocks_expected.items.size());
  data::Tokenizer::Scratch scratch;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    CAPTURE(i);
    std::vector<std::int32_t> ids;
    tokenizer.encode(blocks[i], scratch, ids);
    CHECK(digest(ids) == digest_in(blocks_expected.items[i]));
  }

  const JsonTree& variants = *expected.find("variants");
  REQUIRE(variants.items.size() == 2);
  for (const JsonTree& variant : variants.items) {
    CAPTURE(variant.items[1].string);
    std::string changed = json;
    changed.replace(changed.find(variant.items[0].string), variant.items[0].string.size(), variant.items[1].string);
    CHECK(digest(data::Tokenizer::parse(changed, "a test").encode(text)) == digest_in(variant, 2));
  }
}
