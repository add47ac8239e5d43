// SPDX-License-Identifier: Apache-2.0
/// A functor with a derivative on every element of a Variable: what each pointwise function of one value is.
#pragma once

#include <utility>

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/activation.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
template <class F, class T, int Rank, Device D>
struct PointwiseBackward {
  F f;
  Slot slot;
  Tensor<T, Rank, D> x;
  bool recomputes;

  constexpr void operator()(Tape<D>& tape, Tensor<T, Rank, D> dy) {
    tape.give(slot, ops::apply_vjp(f, x, std::move(dy)));
  }
  constexpr bool is_recomputable() const { return recomputes; }
  constexpr Tensor<T, Rank, D> again(Tape<D>&, const Shape<Rank>&) const { return ops::apply(f, x); }
  static constexpr const void* home() { return nullptr; }
};
}  // namespace detail

namespace operations {
template <class F, class T, int Rank, Device D>
struct Pointwise {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const F& f, const TapedTensor<T, Rank, D>& x) {
    TapedTensor<T, Rank, D> y(ops::apply(f, x.value()), x.tape());
    y.on_backward(
        detail::PointwiseBackward<F, T, Rank, D>{f, x.slot(), x.value(), x.tape().context().recomputes_functions});
    return y;
  }
};
}  // namespace operations

namespace detail {
/// f(x). Any finished placement, kept; keeps x.
template <class F, class T, int Rank, Device D, class W>
constexpr auto pointwise(const F& f, const Variable<T, Rank, D, W>& x) {
  check_activation<typename W::tp>();
  return Variable<T, Rank, D, W>(perform<operations::Pointwise<F, T, Rank, D>>(f, x), x);
}
}  // namespace detail

}  // namespace dspp
