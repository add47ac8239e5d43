// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include <dspp/data/wordpiece.hpp>

using namespace dspp;

namespace {

using Tokens = std::vector<std::int32_t>;

data::Vocabulary vocabulary_of(const std::vector<std::string>& tokens) {
  data::Vocabulary all("a test");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    all.place(tokens[i], static_cast<std::int32_t>(i), tokens[i]);
    all.add_key(tokens[i], static_cast<std::int32_t>(i));
  }
  return all;
}

const std::vector<std::string> tokens{"?", "un",     "##aff",          "##able",   "##a",
                                      "a", "\u00e9", "##\u00e9\u00e9", "##\u00e9", "unable"};

Tokens pieces(std::string_view word, Size most = 100, std::size_t longest = 6) {
  const data::Vocabulary vocabulary = vocabulary_of(tokens);
  Tokens found{77};
  data::WordPiece({"?", "##", most}, vocabulary, longest)(word, vocabulary, found);
  REQUIRE(found[0] == 77);
  found.erase(found.begin());
  return found;
}

/// By the definition: of the tokens that begin the rest, the longest.
Tokens pieces_slowly(std::string_view word) {
  Tokens found;
  for (std::size_t begin = 0; begin < word.size();) {
    std::int32_t best = -1;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string_view token = tokens[i];
      if (begin > 0 && !token.starts_with("##")) continue;
      if (begin > 0) token.remove_prefix(2);
      if (word.substr(begin).starts_with(token) && token.size() > bytes)
        best = static_cast<std::int32_t>(i), bytes = token.size();
    }
    if (best < 0) return {0};
    found.push_back(best);
    begin += bytes;
  }
  return found;
}

}  // namespace

TEST_CASE("the longest token first, and the unknown one if a part is none") {
  CHECK(pieces("unaffable") == Tokens{1, 2, 3});
  CHECK(pieces("unable") == Tokens{9});
  CHECK(pieces("aa") == Tokens{5, 4});
  CHECK(pieces("unx") == Tokens{0});
  CHECK(pieces("x") == Tokens{0});
  CHECK(pieces("a\u00e9\u00e9\u00e9") == Tokens{5, 7, 8});
  CHECK(pieces("\u00e9\u00e9") == Tokens{6, 8});
  CHECK(pieces("##a") == Tokens{4});  // the first token is looked up as it is
}

TEST_CASE("a word of too many characters is unknown") {
  CHECK(pieces("a\u00e9\u00e9", 3) == Tokens{5, 7});
  CHECK(pieces("a\u00e9\u00e9", 2) == Tokens{0});
  CHECK(pieces("a", 0) == Tokens{0});
}

TEST_CASE("the unknown token must be in the vocabulary") {
  CHECK_THROWS_WITH_AS(
      data::WordPiece({"[X]", "##", 5}, vocabulary_of(tokens), 6),
      "dspp: a test needs model.unk_token in model.vocab, but \"[X]\" is absent. Write the file again.", Error);
}

TEST_CASE("random words give the tokens of the definition") {
  const char* const parts[] = {"un", "aff", "able", "a", "\u00e9", "x", "#"};
  std::mt19937 random(6);
  int known = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string word;
    for (auto count = 1 + random() % 6; count > 0; --count) word += parts[random() % (random() % 8 ? 5 : 7)];
    CHECK(pieces(word) == pieces_slowly(word));
    known += pieces(word) != Tokens{0};
  }
  CHECK(known > 500);
}

TEST_CASE("decoded tokens are joined, with spaces between words") {
  const auto text = [](bool cleanup, std::initializer_list<const char*> all) {
    std::string joined;
    for (const char* token : all) data::append_wordpiece(token, "##", cleanup, joined.empty(), joined);
    return joined;
  };
  CHECK(text(false, {"un", "##aff", "able", "."}) == "unaff able .");
  CHECK(text(true, {"un", "##aff", "able", ".", "?", "!", ",", "'", "s"}) == "unaff able.?!, ' s");
  CHECK(text(true, {"##a", "n't", "'s", "'ve", "'re", "'m"}) == "##an't's've're'm");
}
