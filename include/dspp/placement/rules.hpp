// SPDX-License-Identifier: Apache-2.0
/// Which states local operators take, and which they give. Each wrong combination is one sentence.
#pragma once

#include <type_traits>

#include <dspp/placement/placed.hpp>

namespace dspp {

namespace detail {
template <class A, class B, class State>
inline constexpr bool one_is = std::is_same_v<A, State> != std::is_same_v<B, State>;
}  // namespace detail

/// Sum of two values: both alike.
template <class A, class B>
constexpr void check_sum() {
  constexpr bool one_partial = detail::one_is<A, B, Partial>;
  constexpr bool one_invariant = detail::one_is<A, B, Invariant>;
  static_assert(
      !one_partial,
      "dspp: + needs both sides finished or both Partial, but one side is Partial over Tp: the other would be added "
      "once per rank. redistribute<Invariant>(x) the Partial side first.");
  static_assert(
      one_partial || !one_invariant,
      "dspp: + needs both sides placed alike, but one is Invariant and the other is not: Invariant mixes with "
      "nothing else. redistribute the Invariant side to the other's state first.");
  static_assert(
      one_partial || one_invariant || std::is_same_v<A, B>,
      "dspp: + needs both sides placed alike, but they are placed differently over Tp. redistribute one of them "
      "first.");
}

namespace detail {
template <class A, class B>
struct ProductState {
  static constexpr bool both_partial = std::is_same_v<A, Partial> && std::is_same_v<B, Partial>;
  static constexpr bool linear = (std::is_same_v<A, Partial> && std::is_same_v<B, Replicate>) ||
                                 (std::is_same_v<A, Replicate> && std::is_same_v<B, Partial>);
  static constexpr bool one_invariant = one_is<A, B, Invariant>;
  static_assert(
      !both_partial,
      "dspp: a product needs at least one finished factor, but both are Partial over Tp: a product of sums is not "
      "the sum of products. redistribute<Replicate>(x) one of them first.");
  static_assert(
      both_partial || !one_invariant,
      "dspp: a product needs factors that can mix, but one is Invariant and the other is not: Invariant mixes with "
      "nothing else. redistribute the Invariant side to Replicate or to the other's state first.");
  static_assert(
      both_partial || one_invariant || linear || std::is_same_v<A, B>,
      "dspp: a product needs factors placed alike, or Partial with Replicate, but they are placed differently over "
      "Tp. redistribute one of them first.");
  using type = std::conditional_t<linear, Partial, A>;
};
}  // namespace detail

/// State of an element-wise product.
template <class A, class B>
using product_state = typename detail::ProductState<A, B>::type;

/// Non-linear functions need finished values.
template <class A>
constexpr void check_activation() {
  static_assert(
      Finished<A>,
      "dspp: an activation needs a finished value, but this one is Partial over Tp: its sum is still pending. "
      "redistribute<Invariant>(x) first, or put the activation before the RowParallel.");
}

/// Functions along the last dimension (norms, softmax) need all of it.
template <class A, int Rank>
constexpr void check_whole_features() {
  static_assert(
      Finished<A>,
      "dspp: a function along the features needs a finished value, but this one is Partial over Tp: its sum is "
      "still pending. redistribute<Invariant>(x) first.");
  static_assert(
      !std::is_same_v<A, Shard<Rank - 1>>,
      "dspp: a function along the features needs all of them, but this value is split along its features over Tp. "
      "Put a RowParallel before it, or redistribute<Invariant>(x) first.");
}

namespace detail {
/// a [m, k] times b [k, n].
template <class A, class B>
struct MatmulState {
  static constexpr bool contracts_shards = std::is_same_v<A, Shard<1>> && std::is_same_v<B, Shard<0>>;
  static_assert(
      !contracts_shards,
      "dspp: matmul needs the contracted dimension whole, but it is split over Tp on both sides: the result would "
      "be Partial. Say so with contract(a, b), or redistribute first.");
  using Other =
      typename ProductState<std::conditional_t<contracts_shards || std::is_same_v<A, Shard<0>>, Replicate, A>,
                            std::conditional_t<contracts_shards || std::is_same_v<B, Shard<1>>, Replicate, B>>::type;
  static constexpr bool rows = std::is_same_v<A, Shard<0>>, columns = std::is_same_v<B, Shard<1>>;
  static_assert(
      !(rows && columns),
      "dspp: matmul needs at most one side split, but a is split by rows and b by columns over Tp. redistribute one "
      "of them to Replicate first.");
  static_assert(
      contracts_shards || !(is_shard<Other>),
      "dspp: matmul needs the contracted dimension whole, but it is split over Tp on one side. redistribute that "
      "side first.");
  using type = std::conditional_t<rows, Shard<0>, std::conditional_t<columns, Shard<1>, Other>>;
};
}  // namespace detail

/// State of the product of two matrices.
template <class A, class B>
using matmul_state = typename detail::MatmulState<A, B>::type;

}  // namespace dspp
