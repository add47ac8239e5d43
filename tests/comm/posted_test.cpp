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
  CHECK(first_to_differ(2, call) == 0);
  CHECK(first_to_differ(3, call) == 2);
  CHECK(
      describe_mismatch("axis Tp", {4, 5, 6}, 1, call) ==
      "dspp: the ranks of axis Tp call different collectives, the 2nd of this group: rank 4 calls all_reduce(f32 x 5) "
      "for gradient, but rank 6 calls all_reduce(f32 x 5) for scalar. Make every rank call the same operations in the "
      "same order.");
}
