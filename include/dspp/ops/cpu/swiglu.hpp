// SPDX-License-Identifier: Apache-2.0
/// silu(a) b of rows that hold a and b side by side.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// y[i] = silu(x[i, first n]) x[i, last n].
template <class T>
struct Kernel<kernels::Swiglu<T>, Cpu> {
  static void run(Size rows, Size n, T* y, const T* x);
};

/// dx[i], both halves, from dy[i].
template <class T>
struct Kernel<kernels::SwigluVjp<T>, Cpu> {
  static void run(Size rows, Size n, T* dx, const T* x, const T* dy);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/ops/pointwise/swiglu.hpp>

namespace dspp::cpu {

/// Rows of 2 n elements that one thread takes at a time.
constexpr Size swiglu_grain(Size n) {
  return std::max<Size>(1, 8192 / std::max<Size>(n, 1));
}

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::Swiglu<T>, Cpu>::run(Size rows, Size n, T* y, const T* x) {
  using namespace cpu;
  parallel_for(rows, swiglu_grain(n), [=](Size begin, Size end) {
    using C = Compute<T>;
    Lanes<C> buffer_a, buffer_b, result;
    for (Size i = begin; i < end; ++i)
      for (Size j = 0; j < n; j += block_length) {
        const C* a = read_block(buffer_a, x + i * 2 * n + j, n - j);
        const C* b = read_block(buffer_b, x + i * 2 * n + n + j, n - j);
        for (int k = 0; k < block_length; ++k) result[k] = pointwise::Swiglu{}(a[k], b[k]);
        store_block(y + i * n + j, result, n - j);
      }
  });
}

template <class T>
void Kernel<kernels::SwigluVjp<T>, Cpu>::run(Size rows, Size n, T* dx, const T* x, const T* dy) {
  using namespace cpu;
  parallel_for(rows, swiglu_grain(n), [=](Size begin, Size end) {
    using C = Compute<T>;
    Lanes<C> buffer_a, buffer_b, buffer_dy, da, db;
    for (Size i = begin; i < end; ++i)
      for (Size j = 0; j < n; j += block_length) {
        const C* a = read_block(buffer_a, x + i * 2 * n + j, n - j);
        const C* b = read_block(buffer_b, x + i * 2 * n + n + j, n - j);
        const C* upstream = read_block(buffer_dy, dy + i * n + j, n - j);
        for (int k = 0; k < block_length; ++k) pointwise::Swiglu{}.derivatives(a[k], b[k], upstream[k], da[k], db[k]);
        store_block(dx + i * 2 * n + j, da, n - j);
        store_block(dx + i * 2 * n + n + j, db, n - j);
      }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
