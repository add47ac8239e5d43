// SPDX-License-Identifier: Apache-2.0
// Ranks with different facts get one sentence that names them, on every rank; the group still works.
// labels: thread races
#include <doctest/doctest.h>

#include <dspp/comm/same_facts.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The sentence that every rank throws, or "".
template <class FactsOf>
std::string sentence_of(int ranks, FactsOf facts_of) {
  std::vector<std::string> sentences(static_cast<std::size_t>(ranks));
  ThreadsWorld::run(ranks, [&](auto& c) {
    try {
      require_same_on_all_ranks(c, "my program", facts_of(c.rank()), ErrorCode::file);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::file);
      sentences[static_cast<std::size_t>(c.rank())] = error.what();
    }
    int sum = 1;
    all_reduce(c, buffer(&sum, 1), Purpose::scalar);
    CHECK(sum == ranks);
  });
  for (const std::string& sentence : sentences) CHECK(sentence == sentences[0]);
  return sentences[0];
}

const std::string advice = ". Start all ranks with the same program, options and files.";

}  // namespace

TEST_CASE("for every set of odd ranks of 1 to 4 the sentence names the minority, with both values") {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int odd = 0; odd < 1 << ranks; ++odd) {
      CAPTURE(ranks);
      CAPTURE(odd);
      const std::string sentence = sentence_of(
          ranks, [&](int rank) { return Facts().add("same", 1).add("lr", odd >> rank & 1 ? 0.5 : 0.25).add("z", 2); });
      std::vector<int> are[2];
      for (int r = 0; r < ranks; ++r) are[odd >> r & 1].push_back(r);
      if (are[0].empty() || are[1].empty()) {
        CHECK(sentence == "");
        continue;
      }
      const bool ones = are[1].size() < are[0].size() || (are[1].size() == are[0].size() && are[0][0] == 0);
      const std::vector<int>&fewer = are[ones], &more = are[!ones];
      const std::string theirs = ones ? "0.5" : "0.25", usual = ones ? "0.25" : "0.5";
      CHECK(sentence == "dspp: my program needs the same on every rank, but 'lr' is " + theirs + " on " +
                            dspp::detail::name_ranks(fewer) + " and " + usual + " on " +
                            (more.size() == 1 ? dspp::detail::name_ranks(more) : "the others") + advice);
    }
}

TEST_CASE("a fact that one rank lacks, another order, and hostile values are shown in one line") {
  const auto with = [](const Facts& theirs) {
    return sentence_of(3, [&](int rank) { return rank == 1 ? theirs : Facts().add("a", 1).add("b", 2); });
  };
  const std::string begin = "dspp: my program needs the same on every rank, but ";
  CHECK(with(Facts().add("a", 1)) == begin + "'b' is absent on rank 1 and 2 on the others" + advice);
  CHECK(with(Facts().add("a", 1).add("b", 2).add("c", 3)) ==
        begin + "'c' is 3 on rank 1 and absent on the others" + advice);
  CHECK(with(Facts().add("b", 2).add("a", 1)).find("'order'") != std::string::npos);
  CHECK(with(Facts().add("a", "x\n\033[2Jy").add("b", 2)) ==
        begin + "'a' is x??[2Jy on rank 1 and 1 on the others" + advice);
  CHECK(with(Facts().add("a", std::string(500, 'z')).add("b", 2)).find(std::string(77, 'z') + "... on") !=
        std::string::npos);
}

TEST_CASE(
    "of many ranks 16 are named, of a long value 80 characters are shown, and unprintable ones are question marks") {
  std::vector<int> ranks;
  std::string named;
  for (int r = 0; r < 16; ++r) {
    named += (r == 0 ? "" : r == 15 ? " and " : ", ") + ("rank " + std::to_string(r));
    ranks.push_back(r);
  }
  CHECK(dspp::detail::name_ranks(ranks) == named);
  ranks.push_back(16);
  CHECK(dspp::detail::name_ranks(ranks).ends_with(", rank 14, rank 15 and 1 more"));
  CHECK(dspp::detail::name_ranks({}) == "");
  CHECK(dspp::detail::shown(std::string(80, 'z')) == std::string(80, 'z'));
  CHECK(dspp::detail::shown(std::string(81, 'z')) == std::string(77, 'z') + "...");
  CHECK(dspp::detail::shown("\x1f ~\x7f") == "? ~?");
}

TEST_CASE("the odd ranks are those without the most frequent value, in a tie the later ones") {
  using Ranks = std::vector<int>;
  const auto odd = [](std::vector<std::uint64_t> values) { return dspp::detail::odd_ranks(values); };
  CHECK(odd({5}).odd.empty());
  CHECK(odd({5, 6}).odd == Ranks{1});
  CHECK(odd({5, 6, 6}).odd == Ranks{0});
  CHECK(odd({5, 6, 6}).usual == 1);
  CHECK(odd({5, 6, 6, 5}).odd == Ranks{1, 2});
  CHECK(odd({5, 6, 7, 6}).odd == Ranks{0, 2});
}

TEST_CASE("ranks that agree move what was planned on paper") {
  for (int ranks = 1; ranks <= 4; ++ranks)
    ThreadsWorld::run(ranks, [&](auto& c) {
      Recorder<> paper(c.rank(), ranks);
      same_on_paper(paper);
      require_same_on_all_ranks(c, "my program", Facts().add("a", 1));
      CHECK(c.traffic() == paper.traffic());
      CHECK(c.traffic().total() == 8 * (ranks - 1));
    });
}
