// SPDX-License-Identifier: Apache-2.0
/// Products of two Variables. (A product with a parameter is a layer: nn/linear.hpp.)
#pragma once

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/matmul.hpp>
#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace operations {
/// a b.
template <class T, Device D>
struct Matmul {
  using DeviceType = D;
  static constexpr TapedTensor<T, 2, D> run(const TapedTensor<T, 2, D>& a, const TapedTensor<T, 2, D>& b) {
    TapedTensor<T, 2, D> c(ops::matmul(a.value(), Transpose::no, b.value(), Transpose::no), a.tape());
    c.on_backward([i = a.slot(), j = b.slot(), u = a.value(), v = b.value()](Tape<D>& tape, Tensor<T, 2, D> dc) {
      tape.give(i, ops::matmul(dc, Transpose::no, v, Transpose::yes));
      tape.give(j, ops::matmul(u, Transpose::yes, dc, Transpose::no));
    });
    return c;
  }
};

/// a[i] b[i] for every i of the first dimension.
template <class T, Device D>
struct BatchedMatmul {
  using DeviceType = D;
  static constexpr TapedTensor<T, 3, D> run(const TapedTensor<T, 3, D>& a, const TapedTensor<T, 3, D>& b) {
    TapedTensor<T, 3, D> c(ops::batched_matmul(a.value(), Transpose::no, b.value(), Transpose::no), a.tape());
    c.on_backward([i = a.slot(), j = b.slot(), u = a.value(), v = b.value()](Tape<D>& tape, Tensor<T, 3, D> dc) {
      tape.give(i, ops::batched_matmul(dc, Transpose::no, v, Transpose::yes));
      tape.give(j, ops::batched_matmul(u, Transpose::yes, dc, Transpose::no));
    });
    return c;
  }
};
}  // namespace operations

#define DSPP_MATMUL_OPERATIONS(TEMPLATE, T)                      \
  TEMPLATE struct CompiledOperation<operations::Matmul<T, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::BatchedMatmul<T, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_MATMUL_OPERATIONS)

namespace detail {
template <class State, class T, Device D, class A, class B>
constexpr auto recorded_matmul(const Variable<T, 2, D, A>& a, const Variable<T, 2, D, B>& b) {
  check_degrees<A, B>();
  check_product_over_cp<A, B, 2>();
  using C = Variable<T, 2, D, with_tp<product_over_cp<A, B, 2>, State>>;
  return C(perform<operations::Matmul<T, D>>(a, b));
}
}  // namespace detail

/// a b.       a [m, k]   b [k, n]
///
/// Placement   the contracted dimension k whole; rows of a or columns of b may be split; linear in Partial
/// Memory      keeps a and b
template <class T, Device D, class A, class B>
constexpr auto matmul(const Variable<T, 2, D, A>& a, const Variable<T, 2, D, B>& b) {
  return detail::recorded_matmul<matmul_state<typename A::tp, typename B::tp>>(a, b);
}

/// a b where k is split on both sides: every rank has a summand, so the result is Partial.
///
/// Placement   Shard<1> times Shard<0>, in equal groups if any: Partial
template <class T, Device D, class A, class B>
constexpr auto contract(const Variable<T, 2, D, A>& a, const Variable<T, 2, D, B>& b) {
  check_unpadded<typename A::tp>();
  check_unpadded<typename B::tp>();
  constexpr bool split = is_cut_along<typename A::tp, 1> && is_cut_along<typename B::tp, 0>;
  constexpr bool alike = shard_groups<typename A::tp> == shard_groups<typename B::tp>;
  static_assert(!split || alike,
                "dspp: contract needs the contracted dimension split alike over Tp on both sides, but it is split in "
                "other groups on one: a rank holds other elements. redistribute one of them first.");
  static_assert(
      split,
      "dspp: contract needs the contracted dimension split over Tp on both sides, but it is not. Use matmul(a, b).");
  return detail::recorded_matmul<Partial>(a, b);
}

/// a[i] b[i] for every i of the first dimension.
///
/// Placement   both Invariant, both Replicate, or both Shard<0>; Cp may cut the first dimension of both, the rows of a
///             or the columns of b
template <class T, Device D, class A, class B>
constexpr auto batched_matmul(const Variable<T, 3, D, A>& a, const Variable<T, 3, D, B>& b) {
  check_degrees<A, B>();
  using State = product_state<typename A::tp, typename B::tp>;
  static_assert(
      !is_cut_along<State, 1> && !is_cut_along<State, 2>,
      "dspp: batched_matmul needs its matrices whole, but they are split over Tp. Split the first dimension, or "
      "redistribute first.");
  check_product_over_cp<A, B, 3>();
  if constexpr (A::cp_dimension == 0 || B::cp_dimension == 0) check_alike_over_cp<A, B>();
  using C = Variable<T, 3, D, with_tp<product_over_cp<A, B, 3>, State>>;
  return C(perform<operations::BatchedMatmul<T, D>>(a, b));
}

// Values that these do not take get a sentence, not a list of candidates.
template <Tracked A, Tracked B>
requires(!detail::same_kind<A, B> || A::rank != 2) constexpr A matmul(const A& a, const B&) {
  detail::check_kinds<2, A, B>();
  return a;
}
template <Tracked A, Tracked B>
requires(!detail::same_kind<A, B> || A::rank != 2) constexpr A contract(const A& a, const B&) {
  detail::check_kinds<2, A, B>();
  return a;
}
template <Tracked A, Tracked B>
requires(!detail::same_kind<A, B> || A::rank != 3) constexpr A batched_matmul(const A& a, const B&) {
  detail::check_kinds<3, A, B>();
  return a;
}

}  // namespace dspp
