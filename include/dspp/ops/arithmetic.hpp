// SPDX-License-Identifier: Apache-2.0
/// Sums, products and casts of tensors, and the bias of a linear layer.
#pragma once

#include <dspp/ops/cpu/column_sum.hpp>
#include <dspp/ops/cpu/library_pointwise.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/pointwise/arithmetic.hpp>
#include <dspp/ops/workspace.hpp>
#include <dspp/ops/write.hpp>

namespace dspp::ops {

/// x + y, of one shape. Its vjp is dy for both.
///
/// Cost     count operations
/// Memory   one tensor like x
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> add(const Tensor<T, Rank, D>& x, const Tensor<T, Rank, D>& y) {
  require_same_shape(x.shape(), y.shape(), "add");
  auto sum = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, "add");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x, y, sum);
  launch<kernels::PointwisePair<pointwise::Add, T, T, T>, D>(x.memory(), pointwise::Add{}, x.count(), sum.data(),
                                                             x.data(), y.data());
  return sum;
}

/// into += y, in place even if `into` has other handles. `into` may be of a wider type, e.g. f32 gradients of bf16
/// values, and in another memory than the device's, y's.
template <class G, class T, int Rank, class D>
constexpr void add_into(const Tensor<G, Rank, D>& into, const Tensor<T, Rank, D>& y) {
  require_same_shape(into.shape(), y.shape(), "add_into");
  y.memory().count_flops(static_cast<double>(y.count()));
  note_moved(y, into, into);
  launch<kernels::PointwisePair<pointwise::Add, G, G, T>, D>(y.memory(), pointwise::Add{}, y.count(), into.data(),
                                                             into.data(), y.data());
}

/// x * y element by element. Its vjp is mul(dy, y) and mul(dy, x).
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> mul(const Tensor<T, Rank, D>& x, const Tensor<T, Rank, D>& y) {
  require_same_shape(x.shape(), y.shape(), "mul");
  auto product = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, "mul");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x, y, product);
  launch<kernels::PointwisePair<pointwise::Multiply, T, T, T>, D>(x.memory(), pointwise::Multiply{}, x.count(),
                                                                  product.data(), x.data(), y.data());
  return product;
}

/// factor * x: in x's block if it is moved in and has no other handle. Its vjp is scale(dy, factor).
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> scale(Tensor<T, Rank, D> x, double factor) {
  const T* from = x.data();
  const Size count = x.count();
  auto scaled = in_place_or_new(x, "scale");
  scaled.memory().count_flops(static_cast<double>(count));
  note_moved(scaled, scaled);
  using Scale = pointwise::Scale<Compute<T>>;
  launch<kernels::Pointwise<Scale, T, T>, D>(scaled.memory(), Scale{static_cast<Compute<T>>(factor)}, count,
                                             scaled.data(), from);
  return scaled;
}

/// factor * by * x, the first product in f64: as scale, by a number in the device's memory.
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> scale_by(Tensor<T, Rank, D> x, const Scalar<Compute<T>, D>& by, double factor) {
  const T* from = x.data();
  const Size count = x.count();
  auto scaled = in_place_or_new(x, "scale_by");
  scaled.memory().count_flops(static_cast<double>(count));
  note_moved(scaled, scaled);
  launch<kernels::ScaleBy<T>, D>(scaled.memory(), count, scaled.data(), from, static_cast<const Compute<T>*>(by.data()),
                                 factor);
  return scaled;
}

/// y[..., j] = x[..., j] + bias[j]. The bias's gradient is sum_rows_into, that of x is dy.
///
/// Cost     count operations
/// Memory   one tensor like x
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> add_bias(const Tensor<T, Rank, D>& x, const Tensor<T, 1, D>& bias) {
  detail::require_length(bias[0], x[-1], "add_bias", "a bias");
  auto sum = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, "add_bias");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x, sum);
  launch<kernels::AddBias<T>, D>(x.memory(), x.shape().rows(), x[-1], sum.data(), x.data(), bias.data());
  return sum;
}

/// into[j] = (or +=) sum over rows of x[i, j]: the gradient of a bias. Summed in Compute<T>, rounded once.
///
/// Cost     count operations
/// Throws   Error(shape)
template <class G, class T, class D>
constexpr void sum_rows_into(const Tensor<G, 1, D>& into, Write write, const Tensor<T, 2, D>& x) {
  detail::require_length(into[0], x[1], "sum_rows_into", "a target");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x, into);
  detail::launch_with_workspace<kernels::SumRows<T, G>, D>(x.memory(), {x[0], x[1], "sum_rows_into"}, x[0], x[1],
                                                           into.data(), write, x.data());
}

/// The elements of x in another type: to bf16 and f16 rounded to nearest even.
template <class U, class T, int Rank, class D>
constexpr Tensor<U, Rank, D> cast(const Tensor<T, Rank, D>& x, Category category = Category::activations) {
  auto result = Tensor<U, Rank, D>::uninitialized(x.shape(), x.memory(), category, "cast");
  note_moved(x, result);
  launch<kernels::Pointwise<pointwise::Identity, U, T>, D>(x.memory(), pointwise::Identity{}, x.count(), result.data(),
                                                           x.data());
  return result;
}

}  // namespace dspp::ops
