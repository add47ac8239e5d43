// SPDX-License-Identifier: Apache-2.0
/// Elements by a mask, and rows by number.
#pragma once

#include <cstdint>

#include <dspp/ops/kernels.hpp>

namespace dspp {

template <class T, class M>
struct Kernel<kernels::Select<T, M>, Cpu> {
  static void run(Size rows, Size n, T* y, const M* mask, const T* a, double a_number, const T* b, double b_number);
};

template <class T>
struct Kernel<kernels::Gather<T>, Cpu> {
  static void run(Size outer, Size rows, Size count, Size n, T* y, const T* x, const std::int32_t* ids);
};

template <class T>
struct Kernel<kernels::GatherVjp<T>, Cpu> {
  static void run(Size outer, Size rows, Size count, Size n, T* dx, const T* dy, const std::int32_t* ids,
                  std::int32_t* starts, std::int32_t* order);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <algorithm>

#include <dspp/ops/cpu/embedding.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp {

template <class T, class M>
void Kernel<kernels::Select<T, M>, Cpu>::run(Size rows, Size n, T* y, const M* mask, const T* a, double a_number,
                                             const T* b, double b_number) {
  const T a_value = static_cast<T>(static_cast<Compute<T>>(a_number));
  const T b_value = static_cast<T>(static_cast<Compute<T>>(b_number));
  cpu::parallel_for(rows, std::max<Size>(1, 16384 / std::max<Size>(n, 1)), [=](Size begin, Size end) {
    for (Size i = begin; n == 1 && i < end; ++i)  // no calls for single elements
      y[i] = mask[i] != 0 ? (a ? a[i] : a_value) : (b ? b[i] : b_value);
    for (Size i = begin; n != 1 && i < end; ++i) {
      const bool set = mask[i] != 0;
      const T* const from = set ? a : b;
      T* const to = y + i * n;
      if (!from)
        std::fill_n(to, n, set ? a_value : b_value);
      else if (from != y)
        std::copy_n(from + i * n, n, to);
    }
  });
}

template <class T>
void Kernel<kernels::Gather<T>, Cpu>::run(Size outer, Size rows, Size count, Size n, T* y, const T* x,
                                          const std::int32_t* ids) {
  for (Size i = 0; i < outer; ++i)
    Kernel<kernels::Embedding<T>, Cpu>::run(count, rows, n, y + i * count * n, x + i * rows * n, ids + i * count, 0);
}

template <class T>
void Kernel<kernels::GatherVjp<T>, Cpu>::run(Size outer, Size rows, Size count, Size n, T* dx, const T* dy,
                                             const std::int32_t* ids, std::int32_t* starts, std::int32_t* order) {
  for (Size i = 0; i < outer; ++i)
    Kernel<kernels::EmbeddingVjp<T, T>, Cpu>::run(count, rows, n, dx + i * rows * n, Write::overwrite,
                                                  dy + i * count * n, ids + i * count, 0, starts, order);
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
