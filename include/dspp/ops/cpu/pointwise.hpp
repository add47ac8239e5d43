// SPDX-License-Identifier: Apache-2.0
/// A functor on every element of one, two or three ranges.
#pragma once

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/ops/kernels.hpp>
#include <dspp/ops/pointwise/arithmetic.hpp>

namespace dspp::cpu {

inline constexpr Size pointwise_grain = 16384;  // elements that one thread takes at a time

}  // namespace dspp::cpu

namespace dspp {

/// Visible in every translation unit: a functor may be the user's.
///
/// Cost     bound by memory for all but the longest functors
template <class F, class U, class T>
struct Kernel<kernels::Pointwise<F, U, T>, Cpu> {
  static void run(F f, Size count, U* y, const T* x);
};
template <class F, class U, class T, class V>
struct Kernel<kernels::PointwisePair<F, U, T, V>, Cpu> {
  static void run(F f, Size count, U* z, const T* x, const V* y);
};

template <class F, class T>
struct Kernel<kernels::PointwiseVjpOfTwo<F, T>, Cpu> {
  static void run(F f, Size count, T* da, T* db, const T* a, const T* b, const T* dy);
};

template <class T>
struct Kernel<kernels::ScaleBy<T>, Cpu> {
  static void run(Size count, T* y, const T* x, const Compute<T>* by, double factor) {
    using Scale = pointwise::Scale<Compute<T>>;
    const Scale scale{static_cast<Compute<T>>(factor * static_cast<double>(*by))};
    Kernel<kernels::Pointwise<Scale, T, T>, Cpu>::run(scale, count, y, x);
  }
};

template <class F, class U, class T>
void Kernel<kernels::Pointwise<F, U, T>, Cpu>::run(F f, Size count, U* y, const T* x) {
  using namespace cpu;
  parallel_for(count, pointwise_grain, [=](Size begin, Size end) {
    Lanes<Compute<T>> buffer;
    Lanes<Compute<U>> result;
    for (Size i = begin; i < end; i += block_length) {
      const Compute<T>* a = read_block(buffer, x + i, end - i);
      for (int k = 0; k < block_length; ++k) result[k] = static_cast<Compute<U>>(f(a[k]));
      store_block(y + i, result, end - i);
    }
  });
}

template <class F, class U, class T, class V>
void Kernel<kernels::PointwisePair<F, U, T, V>, Cpu>::run(F f, Size count, U* z, const T* x, const V* y) {
  using namespace cpu;
  using C = Compute<U>;
  parallel_for(count, pointwise_grain, [=](Size begin, Size end) {
    Lanes<Compute<T>> buffer_a;
    Lanes<Compute<V>> buffer_b;
    Lanes<C> result;
    for (Size i = begin; i < end; i += block_length) {
      const Compute<T>* a = read_block(buffer_a, x + i, end - i);
      const Compute<V>* b = read_block(buffer_b, y + i, end - i);
      for (int k = 0; k < block_length; ++k) result[k] = f(static_cast<C>(a[k]), static_cast<C>(b[k]));
      store_block(z + i, result, end - i);
    }
  });
}

template <class F, class T>
void Kernel<kernels::PointwiseVjpOfTwo<F, T>, Cpu>::run(F f, Size count, T* da, T* db, const T* a, const T* b,
                                                        const T* dy) {
  using namespace cpu;
  using C = Compute<T>;
  parallel_for(count, pointwise_grain, [=](Size begin, Size end) {
    Lanes<C> buffer_a, buffer_b, buffer_dy, result_a, result_b;
    for (Size i = begin; i < end; i += block_length) {
      const C* x = read_block(buffer_a, a + i, end - i);
      const C* y = read_block(buffer_b, b + i, end - i);
      const C* g = read_block(buffer_dy, dy + i, end - i);
      for (int k = 0; k < block_length; ++k) f(x[k], y[k], g[k], result_a[k], result_b[k]);
      store_block(da + i, result_a, end - i);
      store_block(db + i, result_b, end - i);
    }
  });
}

}  // namespace dspp
