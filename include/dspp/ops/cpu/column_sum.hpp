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
/// rather than with rows. Threads share the columns, in strips as wide as a page.
template <class T, class G>
struct Kernel<kernels::SumRows<T, G>, Cpu> {
  static void run(Size rows, Size n, G* into, Write write, const T* x);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu::detail {

/// sums[j] += x[i * stride + j] for one i after the other, four in one pass over the sums. There is room in sums for
/// whole blocks.
template <class T>
void add_rows(Size rows, Size n, Size stride, const T* x, Compute<T>* sums) {
  using C = Compute<T>;
  Lanes<C> buffers[4];
  Size i = 0;
  for (; i + 4 <= rows; i += 4)
    for (Size j = 0; j < n; j += block_length) {
      const T* const row = x + i * stride + j;
      const C* a = read_block(buffers[0], row, n - j);
      const C* b = read_block(buffers[1], row + stride, n - j);
      const C* c = read_block(buffers[2], row + 2 * stride, n - j);
      const C* d = read_block(buffers[3], row + 3 * stride, n - j);
      for (int k = 0; k < block_length; ++k) sums[j + k] = sums[j + k] + a[k] + b[k] + c[k] + d[k];
    }
  for (; i < rows; ++i)
    for (Size j = 0; j < n; j += block_length) {
      const C* a = read_block(buffers[0], x + i * stride + j, n - j);
      for (int k = 0; k < block_length; ++k) sums[j + k] += a[k];
    }
}

}  // namespace dspp::cpu::detail

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
  constexpr Size run = 64, widest = 1024;
  const Size share = n / threads_of_a_loop() / block_length * block_length;
  parallel_for(n, std::clamp<Size>(share, 2 * block_length, widest), [=](Size begin, Size end) {
    C totals[widest], sums[widest];
    std::fill_n(totals, widest, C(0));
    for (Size first = 0; first < rows; first += run) {
      std::fill_n(sums, widest, C(0));
      cpu::detail::add_rows(std::min(run, rows - first), end - begin, n, x + first * n + begin, sums);
      for (Size j = 0; j < end - begin; ++j) totals[j] += sums[j];
    }
    for (Size j = begin; j < end; ++j) {
      const C total = totals[j - begin];
      into[j] = static_cast<G>(write == Write::accumulate ? static_cast<C>(into[j]) + total : total);
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
