// SPDX-License-Identifier: Apache-2.0
/// Softmax over the last dimension, and its vjp.
#pragma once

#include <dspp/ops/cpu/softmax.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

/// y[..., j] = exp(x[..., j] - m) / sum over j of exp(x[..., j] - m), m the row's maximum.
///
/// Cost     5 operations an element
/// Memory   one tensor like x
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> softmax(const Tensor<T, Rank, D>& x) {
  auto y = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, "softmax");
  x.memory().count_flops(5.0 * static_cast<double>(x.count()));
  note_moved(x, y);
  launch<kernels::Softmax<T>, D>(x.memory(), x.shape().rows(), x[-1], y.data(), x.data());
  return y;
}

/// dx = y (dy - sum over the row of dy y): from the result, not from x. In dy's block if it is moved in and has no
/// other handle.
///
/// Cost     4 operations an element
/// Memory   none or one tensor like dy
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> softmax_vjp(const Tensor<T, Rank, D>& y, Tensor<T, Rank, D> dy) {
  require_same_shape(y.shape(), dy.shape(), "softmax_vjp");
  const T* upstream = dy.data();
  auto dx = in_place_or_new(dy, "softmax_vjp");
  y.memory().count_flops(4.0 * static_cast<double>(y.count()));
  note_moved(y, dx, dx);
  launch<kernels::SoftmaxVjp<T>, D>(y.memory(), y.shape().rows(), y[-1], dx.data(), upstream, y.data());
  return dx;
}

}  // namespace dspp::ops
