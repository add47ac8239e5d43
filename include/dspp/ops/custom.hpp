// SPDX-License-Identifier: Apache-2.0
/// A user's function of the elements of one or two tensors, and its vjp. (Variables: autograd/custom_op.hpp.)
#pragma once

#include <utility>

#include <dspp/ops/cpu/pointwise.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/pointwise/custom.hpp>

namespace dspp::ops {

/// z[i] = f(x[i], y[i]), computed in Compute<T>, of one shape.
///
/// Cost     F::flops operations an element
/// Memory   one tensor like x
/// Throws   Error(shape)
template <class F, class T, int Rank, class D>
constexpr Tensor<T, Rank, D> apply_to_two(F f, const Tensor<T, Rank, D>& x, const Tensor<T, Rank, D>& y) {
  require_same_shape(x.shape(), y.shape(), F::name);
  auto z = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, F::name);
  x.memory().count_flops(F::flops * static_cast<double>(x.count()));
  note_moved(x, y, z);
  launch<kernels::PointwisePair<F, T, T, T>, D>(x.memory(), f, x.count(), z.data(), x.data(), y.data());
  return z;
}

/// dx[i] = vjp(x[i], dy[i]), in dy's block if it is moved in and has no other handle.
template <class V, class T, int Rank, class D>
constexpr Tensor<T, Rank, D> custom_vjp(V vjp, const Tensor<T, Rank, D>& x, Tensor<T, Rank, D> dy) {
  require_same_shape(x.shape(), dy.shape(), "custom_op");
  const T* upstream = dy.data();
  auto dx = in_place_or_new(dy, "custom_op");
  x.memory().count_flops(V::flops * static_cast<double>(x.count()));
  note_moved(x, dx, dx);
  launch<kernels::PointwisePair<V, T, T, T>, D>(x.memory(), vjp, x.count(), dx.data(), x.data(), upstream);
  return dx;
}

/// The gradients of both operands. That of the first is in dy's block if it is moved in and has no other handle.
template <class V, class T, int Rank, class D>
constexpr std::pair<Tensor<T, Rank, D>, Tensor<T, Rank, D>> custom_vjp(V vjp, const Tensor<T, Rank, D>& a,
                                                                       const Tensor<T, Rank, D>& b,
                                                                       Tensor<T, Rank, D> dy) {
  require_same_shape(a.shape(), dy.shape(), "custom_op");
  const T* upstream = dy.data();
  auto db = Tensor<T, Rank, D>::uninitialized(b.shape(), b.memory(), Category::activations, "custom_op");
  auto da = in_place_or_new(dy, "custom_op");
  a.memory().count_flops(V::flops * static_cast<double>(a.count()));
  note_moved(a, b, da, da, db);
  launch<kernels::PointwiseVjpOfTwo<V, T>, D>(a.memory(), vjp, a.count(), da.data(), db.data(), a.data(), b.data(),
                                              upstream);
  return {std::move(da), std::move(db)};
}

}  // namespace dspp::ops
