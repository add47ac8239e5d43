// SPDX-License-Identifier: Apache-2.0
/// Layer normalisation over the last dimension, and its vjp.
#pragma once

#include <dspp/ops/cpu/layer_norm.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/sum_and_norm.hpp>

namespace dspp::ops {

/// The result, and what backward needs: two numbers per row.
template <class T, int Rank, class D>
struct LayerNormResult {
  Tensor<T, Rank, D> y;
  Tensor<Compute<T>, 1, D> mean, rstd;  // [rows]
};

namespace detail {
/// Of x, or with a residual (else null) of sum = x + residual.
template <class T, int Rank, class D>
constexpr LayerNormResult<T, Rank, D> layer_norm_of(const Tensor<T, Rank, D>& x, const T* residual,
                                                    const Tensor<T, 1, D>& gamma, const Tensor<T, 1, D>& beta,
                                                    double epsilon, T* sum) {
  require_length(gamma[0], x[-1], "layer_norm", "a gamma");
  require_length(beta[0], x[-1], "layer_norm", "a beta");
  const Size rows = x.shape().rows();
  auto& memory = x.memory();
  LayerNormResult<T, Rank, D> result{
      Tensor<T, Rank, D>::uninitialized(x.shape(), memory, Category::activations, "layer_norm"),
      Tensor<Compute<T>, 1, D>::uninitialized(shape(rows), memory, Category::activations, "layer_norm"),
      Tensor<Compute<T>, 1, D>::uninitialized(shape(rows), memory, Category::activations, "layer_norm")};
  memory.count_flops(8.0 * static_cast<double>(x.count()));
  note_moved(x, result.y);
  launch<kernels::LayerNorm<T>, D>(memory, rows, x[-1], x.data(), residual, gamma.data(), beta.data(), epsilon, sum,
                                   result.y.data(), result.mean.data(), result.rstd.data());
  return result;
}
}  // namespace detail

/// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta over the n elements of the last dimension.
///
/// Cost     8 operations an element
/// Memory   one tensor like x, and 2 rows numbers
/// Throws   Error(shape)
/// Source   Ba, Kiros, Hinton 2016, Layer Normalization
template <class T, int Rank, class D>
constexpr LayerNormResult<T, Rank, D> layer_norm(const Tensor<T, Rank, D>& x, const Tensor<T, 1, D>& gamma,
                                                 const Tensor<T, 1, D>& beta, double epsilon) {
  return detail::layer_norm_of<T>(x, nullptr, gamma, beta, epsilon, nullptr);
}

/// sum = x + residual, rounded, and the layer norm of it: the bits of add and layer_norm, read once. The sum takes the
/// block of `residual` if that is moved in and has no other handle.
///
/// Cost     9 operations an element
/// Memory   one or two tensors like x, and 2 rows numbers
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr SumAndNorm<Tensor<T, Rank, D>, LayerNormResult<T, Rank, D>> add_layer_norm(const Tensor<T, Rank, D>& x,
                                                                                     Tensor<T, Rank, D> residual,
                                                                                     const Tensor<T, 1, D>& gamma,
                                                                                     const Tensor<T, 1, D>& beta,
                                                                                     double epsilon) {
  const T* const added = residual.data();
  auto sum = detail::room_for_sum(x, residual, "add_layer_norm");
  auto norm = detail::layer_norm_of(x, added, gamma, beta, epsilon, sum.data());
  return {std::move(sum), std::move(norm)};
}

/// dx + earlier, with h = (x - mean) * rstd and g = dy * gamma: dx = rstd * (g - avg(g) - h avg(g h)); dgamma (+)= sum
/// over rows of dy h, dbeta (+)= sum over rows of dy. `earlier`, the gradient that x has already, may be empty. The
/// sum is rounded once, in the block of `earlier`, or else of dy, if that is moved in and has no other handle.
///
/// Cost     16 operations an element, and 1 with `earlier`; reads x, dy (and earlier), writes dx
/// Memory   none or one tensor like x; workspace of at most 64 rows in Compute<T>
/// Throws   Error(shape)
template <class T, class G, int Rank, class D>
constexpr Tensor<T, Rank, D> layer_norm_vjp(const Tensor<T, Rank, D>& x, const Tensor<T, 1, D>& gamma,
                                            const Tensor<Compute<T>, 1, D>& mean, const Tensor<Compute<T>, 1, D>& rstd,
                                            Tensor<T, Rank, D> dy, const Tensor<G, 1, D>& dgamma_into,
                                            Write write_gamma, const Tensor<G, 1, D>& dbeta_into, Write write_beta,
                                            Tensor<T, Rank, D> earlier = {}) {
  require_same_shape(x.shape(), dy.shape(), "layer_norm_vjp");
  if (earlier) require_same_shape(x.shape(), earlier.shape(), "layer_norm_vjp");
  const Size rows = x.shape().rows(), n = x[-1];
  detail::require_length(gamma[0], n, "layer_norm_vjp", "a gamma");
  detail::require_length(dgamma_into[0], n, "layer_norm_vjp", "a target for dgamma");
  detail::require_length(dbeta_into[0], n, "layer_norm_vjp", "a target for dbeta");
  detail::require_length(mean[0], rows, "layer_norm_vjp", "a mean");
  detail::require_length(rstd[0], rows, "layer_norm_vjp", "an rstd");
  auto& memory = x.memory();
  using Planned = PlannedKernel<kernels::LayerNormVjp<T, G>, D>;
  auto scratch = Tensor<Compute<T>, 1, D>::uninitialized(shape(Planned::scratch_count(rows, n)), memory,
                                                         Category::workspace, "layer_norm_vjp");
  const T *upstream = dy.data(), *before = detail::data_or_null(earlier);
  memory.count_flops((earlier ? 17.0 : 16.0) * static_cast<double>(x.count()));
  auto dx = in_place_or_new(earlier, dy, "layer_norm_vjp");
  note_moved(x, dx, dx);
  launch<kernels::LayerNormVjp<T, G>, D>(memory, rows, n, dx.data(), upstream, x.data(), before, gamma.data(),
                                         mean.data(), rstd.data(), scratch.data(), dgamma_into.data(), write_gamma,
                                         dbeta_into.data(), write_beta);
  return dx;
}

}  // namespace dspp::ops
