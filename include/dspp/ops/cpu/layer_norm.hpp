// SPDX-License-Identifier: Apache-2.0
/// Layer normalisation of rows: each row is read from cache after its first pass.
#pragma once

#include <dspp/ops/cpu/row_pieces.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

/// y = (x - mean) * rstd * gamma + beta, row by row of [rows, n]; with a residual of sum = x + residual.
template <class T>
struct Kernel<kernels::LayerNorm<T>, Cpu> {
  static void run(Size rows, Size n, const T* x, const T* residual, const T* gamma, const T* beta, double epsilon,
                  T* sum, T* y, Compute<T>* mean, Compute<T>* rstd);
};

/// dx + earlier (null: dx), which may be in dy or earlier; dgamma and dbeta summed in Compute<T> piece by piece and
/// rounded once.
///
/// Bytes     x, dy (and earlier) read, dx written: 3 or 4 sizeof(T) an element
template <class T, class G>
struct Kernel<kernels::LayerNormVjp<T, G>, Cpu> {
  /// Elements of the scratch: [pieces, 2, n].
  static constexpr Size scratch_count(Size rows, Size n) { return cpu::row_pieces(rows) * 2 * n; }
  static void run(Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma,
                  const Compute<T>* mean, const Compute<T>* rstd, Compute<T>* scratch, G* dgamma, Write write_gamma,
                  G* dbeta, Write write_beta);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <cmath>

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

namespace detail {

/// Mean and 1 / sqrt(variance + epsilon) of one row, the variance from the differences to the mean.
template <class T>
void moments_of_row(Size n, const T* x, double epsilon, Compute<T>& mean, Compute<T>& rstd) {
  using C = Compute<T>;
  Lanes<C> sum = {}, squares = {}, buffer;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer, x + j, n - j);
    for (int k = 0; k < block_length; ++k) sum[k] += a[k];
  }
  const C m = sum_lanes<C>(sum) / static_cast<C>(n);
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer, x + j, n - j, m);
    for (int k = 0; k < block_length; ++k) squares[k] += (a[k] - m) * (a[k] - m);
  }
  mean = m;
  rstd = C(1) / std::sqrt(sum_lanes<C>(squares) / static_cast<C>(n) + static_cast<C>(epsilon));
}

/// dx + earlier of one row; adds this row's part to dgamma and dbeta.
template <class T>
void layer_norm_vjp_row(Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma, Compute<T> mean,
                        Compute<T> inverse, Compute<T>* dgamma, Compute<T>* dbeta) {
  using C = Compute<T>;
  Lanes<C> sum = {}, projection = {}, buffer_a, buffer_b, buffer_g, buffer_gamma, buffer_beta, sum_gamma, sum_beta;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer_a, x + j, n - j, mean);
    const C* b = read_block(buffer_b, dy + j, n - j);
    const C* g = read_block(buffer_g, gamma + j, n - j);
    const C* before_gamma = read_block(buffer_gamma, dgamma + j, n - j);
    const C* before_beta = read_block(buffer_beta, dbeta + j, n - j);
    for (int k = 0; k < block_length; ++k) {
      const C normalized = (a[k] - mean) * inverse;
      const C weighted = b[k] * g[k];
      sum[k] += weighted;
      projection[k] += weighted * normalized;
      sum_gamma[k] = before_gamma[k] + b[k] * normalized;
      sum_beta[k] = before_beta[k] + b[k];
    }
    store_block(dgamma + j, sum_gamma, n - j);
    store_block(dbeta + j, sum_beta, n - j);
  }
  const C average = sum_lanes<C>(sum) / static_cast<C>(n);
  Lanes<C> result;
  const C slope = sum_lanes<C>(projection) / static_cast<C>(n);
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer_a, x + j, n - j);
    const C* b = read_block(buffer_b, dy + j, n - j);
    const C* g = read_block(buffer_g, gamma + j, n - j);
    for (int k = 0; k < block_length; ++k)
      result[k] = inverse * (b[k] * g[k] - average - (a[k] - mean) * inverse * slope);
    if (earlier != nullptr) add_block(result, earlier + j, n - j);
    store_block(dx + j, result, n - j);
  }
}

}  // namespace detail

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::LayerNorm<T>, Cpu>::run(Size rows, Size n, const T* x, const T* residual, const T* gamma,
                                             const T* beta, double epsilon, T* sum, T* y, Compute<T>* mean,
                                             Compute<T>* rstd) {
  using namespace cpu;
  using C = Compute<T>;
  parallel_for(rows, 16, [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const T* const row = residual == nullptr ? x + i * n : add_row(n, x + i * n, residual + i * n, sum + i * n);
      cpu::detail::moments_of_row(n, row, epsilon, mean[i], rstd[i]);
      const C m = mean[i], inverse = rstd[i];
      Lanes<C> buffer_a, buffer_b, buffer_g, result;
      for (Size j = 0; j < n; j += block_length) {
        const C* a = read_block(buffer_a, row + j, n - j);
        const C* g = read_block(buffer_g, gamma + j, n - j);
        const C* b = read_block(buffer_b, beta + j, n - j);
        for (int k = 0; k < block_length; ++k) result[k] = (a[k] - m) * inverse * g[k] + b[k];
        store_block(y + i * n + j, result, n - j);
      }
    }
  });
}

template <class T, class G>
void Kernel<kernels::LayerNormVjp<T, G>, Cpu>::run(Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier,
                                                   const T* gamma, const Compute<T>* mean, const Compute<T>* rstd,
                                                   Compute<T>* scratch, G* dgamma, Write write_gamma, G* dbeta,
                                                   Write write_beta) {
  using namespace cpu;
  const Size grain = piece_rows(rows);
  parallel_for(rows, grain, [=](Size begin, Size end) {
    Compute<T>* sums = scratch + begin / grain * 2 * n;
    std::fill_n(sums, 2 * n, Compute<T>(0));
    for (Size i = begin; i < end; ++i)
      cpu::detail::layer_norm_vjp_row(n, dx + i * n, dy + i * n, x + i * n,
                                      earlier != nullptr ? earlier + i * n : nullptr, gamma, mean[i], rstd[i], sums,
                                      sums + n);
  });
  sum_pieces(row_pieces(rows), n, 2 * n, scratch, dgamma, write_gamma);
  sum_pieces(row_pieces(rows), n, 2 * n, scratch + n, dbeta, write_beta);
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
