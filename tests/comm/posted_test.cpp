// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/comm/posted.hpp>

using namespace dspp;
using namespace dspp::detail;

TEST_CASE("calls that differ in their purpose alone are told apart by it") {
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

TEST_CASE("the parts of an all-to-all differ from rank to rank, and must fit") {
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
