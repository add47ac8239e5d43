// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>

#include <dspp/comm/posted.hpp>

using namespace dspp;
using namespace dspp::detail;

TEST_CASE("calls that differ only in their purpose are distinguished") {
  const PostedPair pair{nullptr, nullptr, 5, ElementType::f32};
  const Posted calls[] = {{Collective::all_reduce, Purpose::gradient, 0, {pair}},
                          {Collective::all_reduce, Purpose::gradient, 0, {pair}},
                          {Collective::all_reduce, Purpose::scalar, 0, {pair}}};
  const auto call = [&](int r) -> const Posted& { return calls[r]; };
  CHECK_FALSE(first_to_differ(2, call));
  CHECK(first_to_differ(3, call).second == 2);
  CHECK(
      describe_mismatch("axis Tp", {4, 5, 6}, 1, call) ==
      "dspp: the ranks of axis Tp call different collectives, the 2nd of this group: rank 4 calls all_reduce(f32 x 5) "
      "for gradient, but rank 6 calls all_reduce(f32 x 5) for scalar. Make every rank call the same operations in the "
      "same order.");
}

TEST_CASE("the parts of an all-to-all differ from rank to rank, and must match") {
  const auto part = [](Size sent, Size received) {
    return PostedPair{nullptr, nullptr, sent, ElementType::f32, received};
  };
  Posted calls[] = {{Collective::all_to_all, Purpose::activation, 0, {part(1, 1), part(2, 5), part(0, 7)}},
                    {Collective::all_to_all, Purpose::activation, 0, {part(5, 2), part(4, 4), part(3, 0)}},
                    {Collective::all_to_all, Purpose::activation, 0, {part(7, 0), part(0, 3), part(9, 9)}}};
  const auto call = [&](int r) -> const Posted& { return calls[r]; };
  CHECK_FALSE(first_to_differ(3, call));
  calls[2].pairs[1].received = 4;
  CHECK(describe_mismatch("axis Cp", {1, 3, 5}, 0, call) ==
        "dspp: the ranks of axis Cp call different collectives, the 1st of this group: rank 3 calls all_to_all(f32 x "
        "12) with 3 to and 0 from rank 5, but rank 5 calls all_to_all(f32 x 16) with 0 to and 4 from rank 3. Make "
        "every rank call the same operations in the same order.");
  calls[2].pairs[0].type = ElementType::f64;
  CHECK(first_to_differ(3, call).first == 0);
}

TEST_CASE("operations have their ordinals") {
  std::string all;
  for (const std::uint64_t n :
       {1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 19, 20, 21, 22, 23, 24, 101, 110, 111, 112, 113, 114, 122})
    all += ordinal(n - 1) + " ";
  CHECK(
      all ==
      "1st 2nd 3rd 4th 9th 10th 11th 12th 13th 14th 19th 20th 21st 22nd 23rd 24th 101st 110th 111th 112th 113th 114th "
      "122nd ");
}

TEST_CASE("ranks are listed with commas and one `and`") {
  CHECK(list_ranks({}) == "");
  CHECK(list_ranks({1}) == "rank 1");
  CHECK(list_ranks({1, 2}) == "rank 1 and rank 2");
  CHECK(list_ranks({1, 2, 5}) == "rank 1, rank 2 and rank 5");
}

TEST_CASE("a call is described by the counts that a rank passes in") {
  const auto pair = [](Size count, ElementType type = ElementType::f32) {
    return PostedPair{nullptr, nullptr, count, type};
  };
  const auto call = [&](Collective collective, std::vector<PostedPair> pairs, int root = 0) {
    return Posted{collective, Purpose::gradient, root, std::move(pairs)};
  };
  CHECK(describe(call(Collective::barrier, {}), 2) == "barrier");
  CHECK(describe(call(Collective::all_reduce, {pair(5)}), 2, 1) == "all_reduce(f32 x 5)");
  CHECK(describe(call(Collective::reduce_scatter, {pair(5)}), 2) == "reduce_scatter(f32 x 10)");
  CHECK(describe(call(Collective::broadcast, {pair(5)}, 1), 2) == "broadcast(f32 x 5, root 1)");
  CHECK(describe(call(Collective::send, {pair(5)}, sender), 2) == "send(f32 x 5)");
  CHECK(describe(call(Collective::send, {pair(5)}, receiver), 2) == "receive(f32 x 5)");
  CHECK(describe(call(Collective::all_gather, {}), 2) == "all_gather(0 pairs)");
  const Posted several = call(Collective::all_gather, {pair(5), pair(20, ElementType::bf16)});
  CHECK(describe(several, 2, 1) == "all_gather(2 pairs, the 2nd bf16 x 20)");
  CHECK(describe(several, 2, 2) == "all_gather(2 pairs)");
}

TEST_CASE("two calls agree if all but their call site is the same, and a send agrees with its receive") {
  const PostedPair pair{nullptr, nullptr, 5, ElementType::f32};
  const Posted one{Collective::broadcast, Purpose::gradient, 1, {pair, pair}};
  CHECK(one.agrees_with(one));
  CHECK(one.first_difference(one) == 2);
  Posted other = one;
  other.collective = Collective::all_reduce;
  CHECK_FALSE(one.agrees_with(other));
  other = one, other.root = 0;
  CHECK_FALSE(one.agrees_with(other));
  other.collective = Collective::send;
  Posted end = other;
  end.root = 1;
  CHECK(other.agrees_with(end));
  for (const std::size_t many : {1, 3}) {
    other = one, other.pairs.resize(many, pair);
    CHECK_FALSE(one.agrees_with(other));
    CHECK(one.first_difference(other) == std::min<std::size_t>(2, many));
  }
  for (const PostedPair& differs :
       {PostedPair{nullptr, nullptr, 6, ElementType::f32}, PostedPair{nullptr, nullptr, 5, ElementType::f64},
        PostedPair{nullptr, nullptr, 5, ElementType::f32, 1}}) {
    other = one, other.pairs[1] = differs;
    CHECK_FALSE(one.agrees_with(other));
    CHECK(one.first_difference(other) == 1);
  }
}

TEST_CASE("the lowest two ranks that differ are found, the first and the last among them") {
  const auto part = [](Size sent, Size received) {
    return PostedPair{nullptr, nullptr, sent, ElementType::f32, received};
  };
  const Posted fits{Collective::all_to_all, Purpose::activation, 0, {part(1, 1), part(1, 1), part(1, 1)}};
  for (int a = 0; a < 3; ++a)
    for (int b = a + 1; b < 3; ++b)
      for (const bool receives : {false, true}) {
        Posted calls[] = {fits, fits, fits};
        PostedPair& of = calls[a].pairs[static_cast<std::size_t>(b)];
        (receives ? of.received : of.count) = 2;
        const Disagreement found = first_to_differ(3, [&](int r) -> const Posted& { return calls[r]; });
        CHECK(found.first == a);
        CHECK(found.second == b);
      }
}
