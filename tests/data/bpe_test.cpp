// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <utility>

#include <dspp/data/bpe.hpp>

using namespace dspp;

namespace {

using Tokens = std::vector<std::int32_t>;
using Table = std::map<std::pair<std::int32_t, std::int32_t>, data::BpeMerges::Merge>;

data::BpeMerges merges_of(const Table& table) {
  data::BpeMerges merges(std::ssize(table));
  for (const auto& [pair, merge] : table) REQUIRE(merges.add(pair.first, pair.second, merge));
  return merges;
}

/// By the definition: merge the leftmost occurrence of the best pair, and repeat.
Tokens merged_slowly(const Table& table, Tokens tokens) {
  while (true) {
    std::size_t best = tokens.size();
    data::BpeMerges::Merge merge;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto at = table.find({tokens[i], tokens[i + 1]});
      if (at != table.end() && (merge.rank < 0 || at->second.rank < merge.rank)) best = i, merge = at->second;
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = merge.merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

TEST_CASE("the pair of least rank merges first, of equal ranks the leftmost") {
  const data::BpeMerges merges =
      merges_of({{{1, 2}, {1, 10}}, {{2, 3}, {0, 11}}, {{1, 1}, {2, 12}}, {{12, 1}, {3, 13}}});
  data::BpeMerger merger;
  const auto merged = [&](Tokens tokens) {
    merger(merges, tokens);
    return tokens;
  };
  CHECK(merged({1, 2, 3}) == Tokens{1, 11});
  CHECK(merged({1, 2, 2}) == Tokens{10, 2});
  CHECK(merged({1, 1, 1}) == Tokens{13});
  CHECK(merged({1, 1, 1, 1}) == Tokens{12, 12});
  CHECK(merged({}) == Tokens{});
  CHECK(merged({3}) == Tokens{3});
}

TEST_CASE("random merges give the tokens of the definition") {
  std::mt19937 random(5);
  data::BpeMerger merger;
  int shortened = 0;
  for (int round = 0; round < 300; ++round) {
    Table table;
    std::int32_t tokens = 4;
    for (std::int32_t rank = 0; rank < 30; ++rank) {
      const auto draw = [&] { return static_cast<std::int32_t>(random() % static_cast<unsigned>(tokens)); };
      const std::int32_t left = draw(), right = draw();
      if (table.emplace(std::pair(left, right), data::BpeMerges::Merge{rank, tokens}).second) ++tokens;
    }
    Tokens word(random() % 60);
    for (std::int32_t& token : word) token = static_cast<std::int32_t>(random() % 4);
    Tokens merged = word;
    merger(merges_of(table), merged);
    CHECK(merged == merged_slowly(table, word));
    shortened += merged.size() < word.size();
  }
  CHECK(shortened > 250);
}

TEST_CASE("a word of a million equal tokens is merged in far less than quadratic time") {
  Table table;
  for (std::int32_t i = 0; i < 20; ++i) table[{i, i}] = {i, i + 1};
  Tokens word(std::size_t{1} << 20, 0);
  data::BpeMerger()(merges_of(table), word);
  CHECK(word == Tokens{20});
}

TEST_CASE("a pair is added once and found among many") {
  data::BpeMerges merges(1000);
  for (std::int32_t i = 0; i < 999; ++i) REQUIRE(merges.add(i, 3 * i, {i, i + 1}));
  CHECK_FALSE(merges.add(7, 21, {5, 5}));
  CHECK(merges.find(7, 21).rank == 7);
  CHECK(merges.find(21, 7).rank == -1);
  CHECK(data::BpeMerges().find(0, 0).rank == -1);
}

TEST_CASE("a cache keeps short words until it is full") {
  data::WordCache cache;
  cache.keep("word", {1, 2});
  cache.keep(std::string(data::WordCache::longest_word, 'x'), {4});
  cache.keep(std::string(data::WordCache::longest_word + 1, 'x'), {3});
  CHECK(cache.find(std::string(data::WordCache::longest_word, 'x')));
  REQUIRE(cache.find("word"));
  CHECK(*cache.find("word") == Tokens{1, 2});
  CHECK(cache.find("wor") == nullptr);
  CHECK(cache.find(std::string(data::WordCache::longest_word + 1, 'x')) == nullptr);
  for (Size i = 0; i < data::WordCache::word_limit; ++i) cache.keep(std::to_string(i), {0});
  CHECK(cache.find(std::to_string(data::WordCache::word_limit - 3)));
  CHECK(cache.find(std::to_string(data::WordCache::word_limit - 2)) == nullptr);
}
