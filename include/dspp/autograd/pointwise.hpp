// SPDX-License-Identifier: Apache-2.0
/// A functor with a derivative on every element of a Variable: what each pointwise function of one value is.
#pragma once

#include <utility>

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/activation.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp::detail {

// What does not depend on the placement is instantiated once for an element type.
template <class F, class T, int Rank, Device D>
constexpr auto pointwise_backward(F f, Slot slot, const Tensor<T, Rank, D>& x) {
  return
      [f, slot, v = x](Tape<D>& tape, Tensor<T, Rank, D> dy) { tape.give(slot, ops::apply_vjp(f, v, std::move(dy))); };
}

/// f(x). Any finished placement, kept; keeps x.
template <class F, class T, int Rank, Device D, class W>
constexpr auto pointwise(F f, const Variable<T, Rank, D, W>& x) {
  check_activation<typename W::tp>();
  Variable<T, Rank, D, W> y(ops::apply(f, x.value()), x);
  y.on_backward(pointwise_backward(f, x.slot(), x.value()));
  return y;
}

}  // namespace dspp::detail
