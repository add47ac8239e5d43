// SPDX-License-Identifier: Apache-2.0
/// Sums over all elements, with their vjps, and the squared norm that clipping needs.
#pragma once

#include <dspp/ops/cpu/reduce.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

/// The sum of all elements, in an order that depends on their number only.
///
/// Cost     count operations
/// Memory   one number
template <class T, int Rank, class D>
constexpr Scalar<Compute<T>, D> sum(const Tensor<T, Rank, D>& x) {
  auto total = Scalar<Compute<T>, D>::uninitialized(shape(), x.memory(), Category::activations, "sum");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x);
  launch<kernels::Sum<T>, D>(x.memory(), x.count(), x.data(), 1.0, total.data());
  return total;
}

/// The mean of all elements.
///
/// Cost     count operations
/// Memory   one number
template <class T, int Rank, class D>
constexpr Scalar<Compute<T>, D> mean(const Tensor<T, Rank, D>& x) {
  auto average = Scalar<Compute<T>, D>::uninitialized(shape(), x.memory(), Category::activations, "mean");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x);
  launch<kernels::Sum<T>, D>(x.memory(), x.count(), x.data(), static_cast<double>(x.count()), average.data());
  return average;
}

/// dx = dy everywhere, of the given shape and element type T.
///
/// Memory   one tensor of the shape
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> sum_vjp(const Shape<Rank>& shape, const Scalar<Compute<T>, D>& dy) {
  auto dx = Tensor<T, Rank, D>::uninitialized(shape, dy.memory(), Category::activations, "sum_vjp");
  note_moved(dx);
  launch<kernels::Broadcast<T>, D>(dy.memory(), shape.count(), dy.data(), 1.0, dx.data());
  return dx;
}

/// dx = dy / count everywhere.
///
/// Memory   one tensor of the shape
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> mean_vjp(const Shape<Rank>& shape, const Scalar<Compute<T>, D>& dy) {
  auto dx = Tensor<T, Rank, D>::uninitialized(shape, dy.memory(), Category::activations, "mean_vjp");
  note_moved(dx);
  launch<kernels::Broadcast<T>, D>(dy.memory(), shape.count(), dy.data(), static_cast<double>(shape.count()),
                                   dx.data());
  return dx;
}

/// The sum of squares, added in f64 in an order that depends on the number of elements only, as a U.
///
/// Cost     2 operations an element
/// Memory   one number
template <class U = double, class T, int Rank, class D>
constexpr Scalar<U, D> squared_norm(const Tensor<T, Rank, D>& x) {
  static_assert(
      std::is_same_v<U, double> || std::is_same_v<U, Compute<T>>,
      "dspp: squared_norm needs to be a double or of the type that T is computed in, but another is asked for. Take "
      "squared_norm<double>(x).");
  const auto norm = Scalar<U, D>::uninitialized(shape(), x.memory(), Category::activations, "squared_norm");
  x.memory().count_flops(2.0 * static_cast<double>(x.count()));
  note_moved(x);
  launch<kernels::SquaredNorm<T, U>, D>(x.memory(), x.count(), x.data(), norm.data());
  return norm;
}

}  // namespace dspp::ops
