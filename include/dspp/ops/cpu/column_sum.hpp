// SPDX-License-Identifier: Apache-2.0
/// A row vector added to every row, and the sum of all rows.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// y[i, j] = x[i, j] + bias[j]; rows x n, row-major. `y` may be `x`.
template <class T>
struct Kernel<kernels::AddBias<T>, Cpu> {
  static void run(Size rows, Size n, T* y, const T* x, const T* bias);
};

/// into[j] (+)= sum_i x[i, j], in runs of 64 rows that are then summed: the rounding error grows with 64 + rows / 64
/// rather than with rows. Threads share the columns, in strips of whole cache lines.
template <class T, class G>
struct Kernel<kernels::SumRows<T, G>, Cpu> {
  static void run(Size rows, Size n, G* into, Write write, const T* x);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp {

template <class T>
void Kernel<kernels::AddBias<T>, Cpu>::run(Size rows, Size n, T* y, const T* x, const T* bias) {
  using namespace cpu;
  const Size grain = std::max<Size>(1, 16384 / std::max<Size>(n, 1));
  parallel_for(rows, grain, [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i)
      for (Size j = 0; j < n; j += block_length) {
        Lanes<Compute<T>> buffer_a, buffer_b, sum;
        const Compute<T>* a = read_block(buffer_a, x + i * n + j, n - j);
        const Compute<T>* b = read_block(buffer_b, bias + j, n - j);
        for (int k = 0; k < block_length; ++k) sum[k] = a[k] + b[k];
        store_block(y + i * n + j, sum, n - j);
      }
  });
}

template <class T, class G>
void Kernel<kernels::SumRows<T, G>, Cpu>::run(Size rows, Size n, G* into, Write write, const T* x) {
  using namespace cpu;
  using C = Compute<T>;
  constexpr Size run = 64;
  constexpr int blocks = 4;
  parallel_for(n, blocks * block_length, [=](Size begin, Size end) {
    Lanes<C> totals[blocks] = {};
    for (Size first = 0; first < rows; first += run) {
      Lanes<C> sums[blocks] = {}, buffer;
      for (Size i = first; i < std::min(rows, first + run); ++i)
        for (Size j = begin; j < end; j += block_length) {
          const C* a = read_block(buffer, x + i * n + j, end - j);
          Lanes<C>& sum = sums[(j - begin) / block_length];
          for (int k = 0; k < block_length; ++k) sum[k] += a[k];
        }
      for (int b = 0; b < blocks; ++b)
        for (int k = 0; k < block_length; ++k) totals[b][k] += sums[b][k];
    }
    for (Size j = begin; j < end; ++j) {
      const C total = totals[(j - begin) / block_length][(j - begin) % block_length];
      into[j] = static_cast<G>(write == Write::accumulate ? static_cast<C>(into[j]) + total : total);
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
