// SPDX-License-Identifier: Apache-2.0
/// Softmax of rows, and the two numbers of a row that it is made of.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// y = softmax of each row of [rows, n].
template <class T>
struct Kernel<kernels::Softmax<T>, Cpu> {
  static void run(Size rows, Size n, T* y, const T* x);
};

/// dx = y * (dy - sum over the row of dy y). `dx` may be `dy`.
template <class T>
struct Kernel<kernels::SoftmaxVjp<T>, Cpu> {
  static void run(Size rows, Size n, T* dx, const T* dy, const T* y);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <limits>

#include <dspp/base/math.hpp>
#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

/// The largest of n elements; minus infinity of none.
template <class T>
Compute<T> row_max(Size n, const T* x) {
  using C = Compute<T>;
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  Lanes<C> largest, buffer;
  for (int k = 0; k < block_length; ++k) largest[k] = lowest;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer, x + j, n - j, lowest);
    for (int k = 0; k < block_length; ++k) largest[k] = a[k] > largest[k] ? a[k] : largest[k];
  }
  return max_lanes<C>(largest);
}

/// The sum of exp(x[j] - shift) over n elements.
template <class T>
Compute<T> row_sum_exp(Size n, const T* x, Compute<T> shift) {
  using C = Compute<T>;
  Lanes<C> sum = {}, buffer;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer, x + j, n - j, -std::numeric_limits<C>::infinity());
    for (int k = 0; k < block_length; ++k) sum[k] += math::exp(a[k] - shift);
  }
  return sum_lanes<C>(sum);
}

/// The sum of n elements.
template <class T>
Compute<T> row_sum(Size n, const T* x) {
  using C = Compute<T>;
  Lanes<C> sum = {}, buffer;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer, x + j, n - j, C(0));
    for (int k = 0; k < block_length; ++k) sum[k] += a[k];
  }
  return sum_lanes<C>(sum);
}

/// y[j] = (exp(x[j] - shift) - less) * factor. `y` may be `x`.
template <class T>
void row_exp(Size n, T* y, const T* x, Compute<T> shift, Compute<T> factor, Compute<T> less = 0) {
  Lanes<Compute<T>> buffer, result;
  for (Size j = 0; j < n; j += block_length) {
    const Compute<T>* a = read_block(buffer, x + j, n - j);
    for (int k = 0; k < block_length; ++k) result[k] = (math::exp(a[k] - shift) - less) * factor;
    store_block(y + j, result, n - j);
  }
}

/// Rows that one thread takes at a time.
constexpr Size row_grain(Size n) {
  return std::max<Size>(1, 8192 / std::max<Size>(n, 1));
}

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::Softmax<T>, Cpu>::run(Size rows, Size n, T* y, const T* x) {
  using namespace cpu;
  parallel_for(rows, row_grain(n), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const Compute<T> shift = row_max(n, x + i * n);
      const Compute<T> sum = row_sum_exp(n, x + i * n, shift);
      row_exp(n, y + i * n, x + i * n, shift, Compute<T>(1) / sum);
    }
  });
}

template <class T>
void Kernel<kernels::SoftmaxVjp<T>, Cpu>::run(Size rows, Size n, T* dx, const T* dy, const T* y) {
  using namespace cpu;
  using C = Compute<T>;
  parallel_for(rows, row_grain(n), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      Lanes<C> sum = {}, buffer_a, buffer_b, result;
      for (Size j = 0; j < n; j += block_length) {
        const C* a = read_block(buffer_a, y + i * n + j, n - j);
        const C* b = read_block(buffer_b, dy + i * n + j, n - j);
        for (int k = 0; k < block_length; ++k) sum[k] += a[k] * b[k];
      }
      const C projection = sum_lanes<C>(sum);
      for (Size j = 0; j < n; j += block_length) {
        const C* a = read_block(buffer_a, y + i * n + j, n - j);
        const C* b = read_block(buffer_b, dy + i * n + j, n - j);
        for (int k = 0; k < block_length; ++k) result[k] = a[k] * (b[k] - projection);
        store_block(dx + i * n + j, result, n - j);
      }
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
