// SPDX-License-Identifier: Apache-2.0
/// A functor on every element of one or two ranges.
#pragma once

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

inline constexpr Size pointwise_grain = 16384;  // elements that one thread takes at a time

/// out[i] = f(x[i]). `out` may be `x`; they must not overlap otherwise.
///
/// Cost     bound by memory for all but the longest functors
template <class F, class U, class T>
void pointwise(F f, Size count, U* out, const T* x) {
  parallel_for(count, pointwise_grain, [=](Size begin, Size end) {
    Lanes<Compute<T>> buffer;
    Lanes<Compute<U>> result;
    for (Size i = begin; i < end; i += block_length) {
      const Compute<T>* a = read_block(buffer, x + i, end - i);
      for (int k = 0; k < block_length; ++k) result[k] = static_cast<Compute<U>>(f(a[k]));
      store_block(out + i, result, end - i);
    }
  });
}

/// out[i] = f(x[i], y[i]), computed in out's type. `out` may be `x` or `y`; no other overlap.
template <class F, class U, class T, class V>
void pointwise(F f, Size count, U* out, const T* x, const V* y) {
  using C = Compute<U>;
  parallel_for(count, pointwise_grain, [=](Size begin, Size end) {
    Lanes<Compute<T>> buffer_a;
    Lanes<Compute<V>> buffer_b;
    Lanes<C> result;
    for (Size i = begin; i < end; i += block_length) {
      const Compute<T>* a = read_block(buffer_a, x + i, end - i);
      const Compute<V>* b = read_block(buffer_b, y + i, end - i);
      for (int k = 0; k < block_length; ++k) result[k] = f(static_cast<C>(a[k]), static_cast<C>(b[k]));
      store_block(out + i, result, end - i);
    }
  });
}

}  // namespace dspp::cpu
