// SPDX-License-Identifier: Apache-2.0
/// Functors of dspp::pointwise on tensors, gelu, relu and silu, each with its vjp.
#pragma once

#include <dspp/ops/cpu/library_pointwise.hpp>
#include <dspp/ops/gelu_form.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/pointwise/arithmetic.hpp>
#include <dspp/ops/pointwise/functions.hpp>
#include <dspp/ops/pointwise/gelu.hpp>
#include <dspp/ops/pointwise/relu.hpp>
#include <dspp/ops/pointwise/silu.hpp>

namespace dspp::ops {

/// y[i] = f(x[i]) for one of the functors of dspp::pointwise.
///
/// Cost     F::flops operations an element
/// Memory   one tensor like x
template <class F, class T, int Rank, class D>
constexpr Tensor<T, Rank, D> apply(F f, const Tensor<T, Rank, D>& x) {
  auto y = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, F::name);
  x.memory().count_flops(F::flops * static_cast<double>(x.count()));
  note_moved(x, y);
  launch<kernels::Pointwise<F, T, T>, D>(x.memory(), f, x.count(), y.data(), x.data());
  return y;
}

/// dx[i] = f'(x[i]) dy[i], in dy's block if it is moved in and has no other handle.
///
/// Cost     F::flops_vjp operations an element
/// Memory   none in place, else one tensor like x
/// Throws   Error(shape)
template <class F, class T, int Rank, class D>
constexpr Tensor<T, Rank, D> apply_vjp(F f, const Tensor<T, Rank, D>& x, Tensor<T, Rank, D> dy) {
  require_same_shape(x.shape(), dy.shape(), F::name);
  const T* upstream = dy.data();
  auto dx = in_place_or_new(dy, F::name);
  x.memory().count_flops(F::flops_vjp * static_cast<double>(x.count()));
  note_moved(x, dx, dx);
  launch<kernels::PointwisePair<pointwise::Vjp<F>, T, T, T>, D>(x.memory(), pointwise::Vjp<F>{f}, x.count(), dx.data(),
                                                                x.data(), upstream);
  return dx;
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> gelu(const Tensor<T, Rank, D>& x, GeluForm form) {
  if (form == GeluForm::exact) return apply(pointwise::GeluExact{}, x);
  return apply(pointwise::GeluTanh{}, x);
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> gelu_vjp(const Tensor<T, Rank, D>& x, GeluForm form, Tensor<T, Rank, D> dy) {
  if (form == GeluForm::exact) return apply_vjp(pointwise::GeluExact{}, x, std::move(dy));
  return apply_vjp(pointwise::GeluTanh{}, x, std::move(dy));
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> relu(const Tensor<T, Rank, D>& x) {
  return apply(pointwise::Relu{}, x);
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> relu_vjp(const Tensor<T, Rank, D>& x, Tensor<T, Rank, D> dy) {
  return apply_vjp(pointwise::Relu{}, x, std::move(dy));
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> silu(const Tensor<T, Rank, D>& x) {
  return apply(pointwise::Silu{}, x);
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> silu_vjp(const Tensor<T, Rank, D>& x, Tensor<T, Rank, D> dy) {
  return apply_vjp(pointwise::Silu{}, x, std::move(dy));
}

}  // namespace dspp::ops
