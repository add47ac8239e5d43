// SPDX-License-Identifier: Apache-2.0
/// Local operators on Variables: values, gradients, and the placement rules that make a wrong sharding a compile error.
/// After its error sentence a wrong one returns x, so that a plan in a constant expression gives no further errors.
#pragma once

#include <type_traits>

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

/// x + y, element by element.
///
/// Placement   both sides alike; Partial + Partial is Partial
template <class T, int Rank, Device D, class A, class B>
constexpr auto operator+(const Variable<T, Rank, D, A>& x, const Variable<T, Rank, D, B>& y) {
  check_degrees<A, B>();
  check_sum<typename A::tp, typename B::tp>();
  check_alike_over_cp<A, B>();
  if constexpr (!std::is_same_v<A, B>) {
    return x;
  } else {
    detail::require_one_whole(x, y);
    Variable<T, Rank, D, A> z(ops::add(x.value(), y.value()), x);
    z.on_backward([a = x.slot(), b = y.slot()](Tape<D>& tape, Tensor<T, Rank, D> dz) {
      tape.give(a, dz);
      tape.give(b, std::move(dz));
    });
    return z;
  }
}

/// x * y, element by element.
///
/// Placement   both sides alike, or Partial with Replicate: Partial. Partial times Partial does not compile.
template <class T, int Rank, Device D, class A, class B>
constexpr auto operator*(const Variable<T, Rank, D, A>& x, const Variable<T, Rank, D, B>& y) {
  check_degrees<A, B>();
  using State = product_state<typename A::tp, typename B::tp>;
  check_alike_over_cp<A, B>();
  if constexpr (!can_multiply<typename A::tp, typename B::tp> ||
                !std::is_same_v<with_tp<A, State>, with_tp<B, State>>) {
    return x;
  } else {
    detail::require_one_whole(x, y);
    InState<Variable<T, Rank, D, A>, State> z(ops::mul(x.value(), y.value()), x);
    z.on_backward([a = x.slot(), b = y.slot(), u = x.value(), v = y.value()](Tape<D>& tape, Tensor<T, Rank, D> dz) {
      tape.give(a, ops::mul(dz, v));
      tape.give(b, ops::mul(dz, u));
    });
    return z;
  }
}

/// factor * x.
///
/// Placement   any, kept: scaling is linear
template <class T, int Rank, Device D, class W>
constexpr auto operator*(double factor, const Variable<T, Rank, D, W>& x) {
  Variable<T, Rank, D, W> y(ops::scale(x.value(), factor), x);
  y.on_backward([slot = x.slot(), factor](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    tape.give(slot, ops::scale(std::move(dy), factor));
  });
  return y;
}
template <class T, int Rank, Device D, class W>
constexpr auto operator*(const Variable<T, Rank, D, W>& x, double factor) {
  return factor * x;
}

}  // namespace dspp
