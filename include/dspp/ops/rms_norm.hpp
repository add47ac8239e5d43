// SPDX-License-Identifier: Apache-2.0
/// Root-mean-square normalisation over the last dimension, and its vjp.
#pragma once

#include <dspp/ops/cpu/rms_norm.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/sum_and_norm.hpp>

namespace dspp::ops {

/// The result, and what backward needs: one number per row.
template <class T, int Rank, class D>
struct RmsNormResult {
  Tensor<T, Rank, D> y;
  Tensor<Compute<T>, 1, D> inverse_root;  // [rows]
};

namespace detail {
/// Of x, or with a residual (else null) of sum = x + residual.
template <class T, int Rank, class D>
constexpr RmsNormResult<T, Rank, D> rms_norm_of(const Tensor<T, Rank, D>& x, const T* residual,
                                                const Tensor<T, 1, D>& gamma, double epsilon, T* sum) {
  require_length(gamma[0], x[-1], "rms_norm", "a gamma");
  const Size rows = x.shape().rows();
  auto& memory = x.memory();
  RmsNormResult<T, Rank, D> result{
      Tensor<T, Rank, D>::uninitialized(x.shape(), memory, Category::activations, "rms_norm"),
      Tensor<Compute<T>, 1, D>::uninitialized(shape(rows), memory, Category::activations, "rms_norm")};
  memory.count_flops(4.0 * static_cast<double>(x.count()));
  note_moved(x, result.y);
  launch<kernels::RmsNorm<T>, D>(memory, rows, x[-1], x.data(), residual, gamma.data(), epsilon, sum, result.y.data(),
                                 result.inverse_root.data());
  return result;
}
}  // namespace detail

/// y = x / sqrt(mean of x^2 + epsilon) * gamma over the n elements of the last dimension.
///
/// Cost     4 operations an element
/// Memory   one tensor like x, and a number per row
/// Throws   Error(shape)
/// Source   Zhang and Sennrich 2019, Root Mean Square Layer Normalization
template <class T, int Rank, class D>
constexpr RmsNormResult<T, Rank, D> rms_norm(const Tensor<T, Rank, D>& x, const Tensor<T, 1, D>& gamma,
                                             double epsilon) {
  return detail::rms_norm_of<T>(x, nullptr, gamma, epsilon, nullptr);
}

/// sum = x + residual, rounded, and the RMS norm of it: as add_layer_norm.
///
/// Cost     5 operations an element
/// Memory   one or two tensors like x, and a number per row
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr SumAndNorm<Tensor<T, Rank, D>, RmsNormResult<T, Rank, D>> add_rms_norm(const Tensor<T, Rank, D>& x,
                                                                                 Tensor<T, Rank, D> residual,
                                                                                 const Tensor<T, 1, D>& gamma,
                                                                                 double epsilon) {
  const T* const added = residual.data();
  auto sum = detail::room_for_sum(x, residual, "add_rms_norm");
  auto norm = detail::rms_norm_of(x, added, gamma, epsilon, sum.data());
  return {std::move(sum), std::move(norm)};
}

/// dx + earlier, with h = x * inverse_root and g = dy * gamma: dx = inverse_root * (g - h avg(g h)); dgamma (+)= sum
/// over rows of dy h. `earlier`, the gradient that x has already, may be empty. The sum is rounded once, in the block
/// of `earlier`, or else of dy, if that is moved in and has no other handle.
///
/// Cost     11 operations an element, and 1 with `earlier`; reads x, dy (and earlier), writes dx
/// Memory   none or one tensor like x; workspace of at most 32 rows in Compute<T>
/// Throws   Error(shape)
template <class T, class G, int Rank, class D>
constexpr Tensor<T, Rank, D> rms_norm_vjp(const Tensor<T, Rank, D>& x, const Tensor<T, 1, D>& gamma,
                                          const Tensor<Compute<T>, 1, D>& inverse_root, Tensor<T, Rank, D> dy,
                                          const Tensor<G, 1, D>& dgamma_into, Write write,
                                          Tensor<T, Rank, D> earlier = {}) {
  require_same_shape(x.shape(), dy.shape(), "rms_norm_vjp");
  if (earlier) require_same_shape(x.shape(), earlier.shape(), "rms_norm_vjp");
  const Size rows = x.shape().rows(), n = x[-1];
  detail::require_length(gamma[0], n, "rms_norm_vjp", "a gamma");
  detail::require_length(dgamma_into[0], n, "rms_norm_vjp", "a target for dgamma");
  detail::require_length(inverse_root[0], rows, "rms_norm_vjp", "an inverse root");
  auto& memory = x.memory();
  using Planned = PlannedKernel<kernels::RmsNormVjp<T, G>, D>;
  auto scratch = Tensor<Compute<T>, 1, D>::uninitialized(shape(Planned::scratch_count(rows, n)), memory,
                                                         Category::workspace, "rms_norm_vjp");
  const T *upstream = dy.data(), *before = detail::data_or_null(earlier);
  memory.count_flops((earlier ? 12.0 : 11.0) * static_cast<double>(x.count()));
  auto dx = in_place_or_new(earlier, dy, "rms_norm_vjp");
  note_moved(x, dx, dx);
  launch<kernels::RmsNormVjp<T, G>, D>(memory, rows, n, dx.data(), upstream, x.data(), before, gamma.data(),
                                       inverse_root.data(), scratch.data(), dgamma_into.data(), write);
  return dx;
}

}  // namespace dspp::ops
