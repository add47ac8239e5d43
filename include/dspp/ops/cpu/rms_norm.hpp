// SPDX-License-Identifier: Apache-2.0
/// Root-mean-square normalisation of rows: each row is read from cache after its first pass.
#pragma once

#include <dspp/ops/cpu/row_pieces.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

/// y = x * inverse_root * gamma, row by row of [rows, n]; with a residual of sum = x + residual.
template <class T>
struct Kernel<kernels::RmsNorm<T>, Cpu> {
  static void run(Size rows, Size n, const T* x, const T* residual, const T* gamma, double epsilon, T* sum, T* y,
                  Compute<T>* inverse_root);
};

/// dx + earlier (null: dx), which may be in dy or earlier; dgamma summed in Compute<T> piece by piece and rounded once.
///
/// Bytes     x, dy (and earlier) read, dx written: 3 or 4 sizeof(T) an element
template <class T, class G>
struct Kernel<kernels::RmsNormVjp<T, G>, Cpu> {
  /// Elements of the scratch: [pieces, n].
  static constexpr Size scratch_count(Size rows, Size n) { return cpu::row_pieces(rows) * n; }
  static void run(Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma,
                  const Compute<T>* inverse_root, Compute<T>* scratch, G* dgamma, Write write);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <cmath>

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

namespace detail {

/// 1 / sqrt(mean of squares + epsilon) of one row.
template <class T>
Compute<T> inverse_root_of_row(Size n, const T* x, double epsilon) {
  using C = Compute<T>;
  Lanes<C> squares = {}, buffer;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer, x + j, n - j);
    for (int k = 0; k < block_length; ++k) squares[k] += a[k] * a[k];
  }
  return C(1) / std::sqrt(sum_lanes<C>(squares) / static_cast<C>(n) + static_cast<C>(epsilon));
}

/// dx + earlier of one row; adds this row's part to dgamma.
template <class T>
void rms_norm_vjp_row(Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma, Compute<T> inverse,
                      Compute<T>* dgamma) {
  using C = Compute<T>;
  Lanes<C> projection = {}, buffer_a, buffer_b, buffer_g, buffer_sum, sum;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer_a, x + j, n - j);
    const C* b = read_block(buffer_b, dy + j, n - j);
    const C* g = read_block(buffer_g, gamma + j, n - j);
    const C* before = read_block(buffer_sum, dgamma + j, n - j);
    for (int k = 0; k < block_length; ++k) {
      const C normalized = a[k] * inverse;
      projection[k] += b[k] * g[k] * normalized;
      sum[k] = before[k] + b[k] * normalized;
    }
    store_block(dgamma + j, sum, n - j);
  }
  const C slope = sum_lanes<C>(projection) / static_cast<C>(n);
  Lanes<C> result;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer_a, x + j, n - j);
    const C* b = read_block(buffer_b, dy + j, n - j);
    const C* g = read_block(buffer_g, gamma + j, n - j);
    for (int k = 0; k < block_length; ++k) result[k] = inverse * (b[k] * g[k] - a[k] * inverse * slope);
    if (earlier != nullptr) add_block(result, earlier + j, n - j);
    store_block(dx + j, result, n - j);
  }
}

}  // namespace detail

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::RmsNorm<T>, Cpu>::run(Size rows, Size n, const T* x, const T* residual, const T* gamma,
                                           double epsilon, T* sum, T* y, Compute<T>* inverse_root) {
  using namespace cpu;
  using C = Compute<T>;
  parallel_for(rows, 16, [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const T* const row = residual == nullptr ? x + i * n : add_row(n, x + i * n, residual + i * n, sum + i * n);
      const C inverse = cpu::detail::inverse_root_of_row(n, row, epsilon);
      inverse_root[i] = inverse;
      Lanes<C> buffer_a, buffer_g, result;
      for (Size j = 0; j < n; j += block_length) {
        const C* a = read_block(buffer_a, row + j, n - j);
        const C* g = read_block(buffer_g, gamma + j, n - j);
        for (int k = 0; k < block_length; ++k) result[k] = a[k] * inverse * g[k];
        store_block(y + i * n + j, result, n - j);
      }
    }
  });
}

template <class T, class G>
void Kernel<kernels::RmsNormVjp<T, G>, Cpu>::run(Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier,
                                                 const T* gamma, const Compute<T>* inverse_root, Compute<T>* scratch,
                                                 G* dgamma, Write write) {
  using namespace cpu;
  const Size grain = piece_rows(rows);
  parallel_for(rows, grain, [=](Size begin, Size end) {
    Compute<T>* sums = scratch + begin / grain * n;
    std::fill_n(sums, n, Compute<T>(0));
    for (Size i = begin; i < end; ++i)
      cpu::detail::rms_norm_vjp_row(n, dx + i * n, dy + i * n, x + i * n,
                                    earlier != nullptr ? earlier + i * n : nullptr, gamma, inverse_root[i], sums);
  });
  sum_pieces(row_pieces(rows), n, n, scratch, dgamma, write);
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
