// SPDX-License-Identifier: Apache-2.0
/// Products of two Variables. (A product with a parameter is a layer: nn/linear.hpp.)
#pragma once

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/matmul.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
template <class State, class T, Device D, class A, class B>
constexpr auto recorded_matmul(const Variable<T, 2, D, A>& a, const Variable<T, 2, D, B>& b) {
  check_degrees<A, B>();
  Variable<T, 2, D, with_tp<A, State>> c(ops::matmul(a.value(), Transpose::no, b.value(), Transpose::no), a.tape());
  c.on_backward([i = a.slot(), j = b.slot(), u = a.value(), v = b.value()](Tape<D>& tape, Tensor<T, 2, D> dc) {
    tape.give(i, ops::matmul(dc, Transpose::no, v, Transpose::yes));
    tape.give(j, ops::matmul(u, Transpose::yes, dc, Transpose::no));
  });
  return c;
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

/// a b where k is split on both sides: every rank has a summand, and the type says so.
///
/// Placement   Shard<1> times Shard<0>: Partial
template <class T, Device D, class A, class B>
constexpr auto contract(const Variable<T, 2, D, A>& a, const Variable<T, 2, D, B>& b) {
  constexpr bool split = std::is_same_v<typename A::tp, Shard<1>> && std::is_same_v<typename B::tp, Shard<0>>;
  static_assert(
      split,
      "dspp: contract needs the contracted dimension split over Tp on both sides, but it is not. Use matmul(a, b).");
  return detail::recorded_matmul<Partial>(a, b);
}

/// a[i] b[i] for every i of the first dimension.
///
/// Placement   both Invariant, both Replicate, or both Shard<0>
template <class T, Device D, class A, class B>
constexpr auto batched_matmul(const Variable<T, 3, D, A>& a, const Variable<T, 3, D, B>& b) {
  check_degrees<A, B>();
  using State = product_state<typename A::tp, typename B::tp>;
  static_assert(
      !std::is_same_v<State, Shard<1>> && !std::is_same_v<State, Shard<2>>,
      "dspp: batched_matmul needs its matrices whole, but they are split over Tp. Split the first dimension, or "
      "redistribute first.");
  Variable<T, 3, D, with_tp<A, State>> c(ops::batched_matmul(a.value(), Transpose::no, b.value(), Transpose::no),
                                         a.tape());
  c.on_backward([i = a.slot(), j = b.slot(), u = a.value(), v = b.value()](Tape<D>& tape, Tensor<T, 3, D> dc) {
    tape.give(i, ops::batched_matmul(dc, Transpose::no, v, Transpose::yes));
    tape.give(j, ops::batched_matmul(u, Transpose::yes, dc, Transpose::no));
  });
  return c;
}

}  // namespace dspp
