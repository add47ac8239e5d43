// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/placement/arrow.hpp>
#include <dspp/placement/rules.hpp>

using namespace dspp;

namespace {
template <class A, class B>
constexpr bool same = std::is_same_v<A, B>;

template <class State>
constexpr bool involution = same<adjoint<adjoint<State>>, State>;
}  // namespace

TEST_CASE("the gradient's placement is a function of the value's, and an involution") {
  static_assert(involution<Invariant> && involution<Replicate> && involution<Partial> && involution<Shard<2>>);
  CHECK(same<adjoint<Replicate>, Partial>);
}

TEST_CASE("the table of arrows is the one of the design, forward and backward") {
  static_assert(arrow<Invariant, Replicate> == Move::none && backward_arrow<Invariant, Replicate> == Move::all_reduce);
  static_assert(arrow<Partial, Invariant> == Move::all_reduce && backward_arrow<Partial, Invariant> == Move::none);
  static_assert(arrow<Partial, Replicate> == Move::all_reduce);
  static_assert(backward_arrow<Partial, Replicate> == Move::all_reduce);
  static_assert(arrow<Invariant, Shard<1>> == Move::slice && backward_arrow<Invariant, Shard<1>> == Move::all_gather);
  static_assert(arrow<Shard<1>, Invariant> == Move::all_gather && backward_arrow<Shard<1>, Invariant> == Move::slice);
  static_assert(arrow<Shard<1>, Replicate> == Move::all_gather);
  static_assert(backward_arrow<Shard<1>, Replicate> == Move::reduce_scatter);
  static_assert(arrow<Partial, Shard<0>> == Move::reduce_scatter);
  static_assert(backward_arrow<Partial, Shard<0>> == Move::all_gather);
  static_assert(arrow<Replicate, Shard<0>> == Move::slice);
  static_assert(backward_arrow<Replicate, Shard<0>> == Move::pad_with_zeros);
  static_assert(arrow<Shard<0>, Shard<1>> == Move::all_to_all && arrow<Shard<1>, Shard<1>> == Move::none);
  static_assert(backward_arrow<Shard<0>, Shard<1>> == Move::all_to_all);
  static_assert(arrow<Replicate, Invariant> == Move::forbidden);
  static_assert(arrow<Shard<1, 2>, Invariant> == Move::all_gather &&
                arrow<Partial, Shard<1, 2>> == Move::reduce_scatter);
  static_assert(arrow<Shard<1, 2>, Shard<1, 2>> == Move::none && arrow<Shard<1, 2>, Shard<1>> == Move::forbidden);
  CHECK(arrow<Invariant, Partial> == Move::forbidden);
}

TEST_CASE("one meaning is one type: Shard<-1> of a tensor of rank 3 is Shard<2>") {
  static_assert(same<canonical_state<Shard<-1>, 3>, Shard<2>> && same<canonical_state<Partial, 3>, Partial>);
  static_assert(WholeAlong<Shard<1>, -1, 3> && !WholeAlong<Shard<2>, -1, 3> && !WholeAlong<Partial, 0, 3>);
  static_assert(same<canonical_state<Shard<-1, 2>, 3>, Shard<2, 2>> && same<Shard<2, 1>, Shard<2>>);
  static_assert(!WholeAlong<Shard<2, 2>, -1, 3> && is_shard<Shard<2, 2>> && shard_groups<Shard<2, 2>> == 2);
  CHECK(shard_dimension<Invariant> == -1);
}

TEST_CASE("products and reductions give the states of the design") {
  static_assert(same<product_state<Partial, Replicate>, Partial> && same<product_state<Shard<1>, Shard<1>>, Shard<1>>);
  static_assert(same<matmul_state<Shard<0>, Replicate>, Shard<0>> && same<matmul_state<Replicate, Shard<1>>, Shard<1>>);
  static_assert(same<matmul_state<Partial, Replicate>, Partial> && same<matmul_state<Invariant, Invariant>, Invariant>);
  static_assert(same<reduced_state<Shard<1>>, Partial> && same<reduced_state<Invariant>, Invariant>);
  static_assert(same<transposed_state<Shard<1>, 2, 0, 1>, Shard<2>> && is_permutation<1, 0>(2));
  static_assert(same<transposed_state<Shard<1, 3>, 2, 0, 1>, Shard<2, 3>>);
  static_assert(same<matmul_state<Shard<0, 2>, Replicate>, Shard<0, 2>> && same<reduced_state<Shard<1, 2>>, Partial>);
  static_assert(same<part_state<Shard<2, 6>, 2, 3>, Shard<2, 2>> && same<part_state<Shard<2, 3>, 2, 3>, Shard<2>>);
  static_assert(same<part_state<Shard<1>, 2, 3>, Shard<1>>);
  CHECK(!is_permutation<1, 1>(2));
}
