// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <dspp/data/bpe_model.hpp>

using namespace dspp;

namespace {

using Tokens = std::vector<std::int32_t>;

/// Bytes are 0 to 255, behind them are a, b, e with an acute accent, and ab.
struct Characters {
  explicit Characters(bool ignore_merges = false) : model(data::BpeModel::Begin::characters, ignore_merges, 2) {
    std::int32_t id = 0;
    for (; id < 256; ++id) vocabulary.add_key(data::fallback_byte(static_cast<unsigned char>(id)), id);
    for (const char* token : {"a", "b", "\u00e9", "ab", "aa"}) vocabulary.add_key(token, id++);
    model.find_byte_tokens(
        vocabulary, [](unsigned char byte) { return std::pair(data::fallback_byte(byte), data::fallback_byte(byte)); });
    CHECK(model.add(256, 257, 259));
    CHECK_FALSE(model.add(256, 257, 260));
  }

  Tokens operator()(std::string_view word) const {
    Tokens tokens{9};
    data::BpeMerger merger;
    model(word, vocabulary, merger, tokens);
    return tokens;
  }

  data::Vocabulary vocabulary{"a test"};
  data::BpeModel model;
};

}  // namespace

TEST_CASE("a byte is written as a token and read") {
  CHECK(data::fallback_byte(0x0a) == "<0x0A>");
  CHECK(data::fallback_byte(0xf9) == "<0xF9>");
  for (int byte = 0; byte < 256; ++byte)
    CHECK(data::read_fallback_byte(data::fallback_byte(static_cast<unsigned char>(byte))) == byte);
  for (const char* other : {"<0x0a>", "<0xG0>", "<0x0G>", "<0x00", "<0x000>", "<1x00>", "<0x00]", "", "<0X00>"})
    CHECK_FALSE(data::read_fallback_byte(other));
}

TEST_CASE("a character is a token, or its bytes are; then pairs merge") {
  const Characters tokens;
  CHECK(tokens("abab") == Tokens{259, 259});
  CHECK(tokens("\u00e9ba") == Tokens{258, 257, 256});
  CHECK(tokens("\u00e8"
               "a\xff\xc3") == Tokens{0xc3, 0xa8, 256, 0xff, 0xc3});
  CHECK(tokens("") == Tokens{});
  CHECK(tokens("aa") == Tokens{256, 256});
  CHECK(Characters(true)("aa") == Tokens{260});
  CHECK(Characters(true)("aab") == Tokens{256, 259});
}

TEST_CASE("a byte without a token is an error") {
  data::Vocabulary vocabulary("a test");
  data::BpeModel model(data::BpeModel::Begin::bytes, false, 0);
  const auto find = [&] {
    model.find_byte_tokens(vocabulary, [](unsigned char byte) {
      return std::pair(std::string(1, static_cast<char>(byte)), std::string("N"));
    });
  };
  CHECK_THROWS_WITH_AS(
      find(),
      "dspp: a test needs a token for each byte in model.vocab, but \"N\", which stands for byte 0, is "
      "absent. Write the file again.",
      Error);
}
