// SPDX-License-Identifier: Apache-2.0
/// A functor on every pair of elements of two ranges, of which each may repeat elements.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

template <class F, class T>
struct Kernel<kernels::PointwiseBroadcast<F, T>, Cpu> {
  static void run(F f, const kernels::Repeats& at, T* z, const T* x, const T* y);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp {

template <class F, class T>
void Kernel<kernels::PointwiseBroadcast<F, T>, Cpu>::run(F f, const kernels::Repeats& at, T* z, const T* x,
                                                         const T* y) {
  using namespace cpu;
  using C = Compute<T>;
  constexpr Size piece = 16384;  // elements of a row that one thread takes at a time
  const Size n = at.extents[0], pieces = (n + piece - 1) / piece;
  Size rows = 1;
  for (int d = 1; d < at.dimensions; ++d) rows *= at.extents[d];
  const bool x_repeats = at.x_strides[0] == 0, y_repeats = at.y_strides[0] == 0;
  parallel_for(rows * pieces, std::max<Size>(1, piece / std::max<Size>(n, 1)), [=](Size begin, Size end) {
    Lanes<C> buffer_a, buffer_b, result;
    for (Size task = begin; task < end; ++task) {
      const Size row = task / pieces, first = task % pieces * piece, last = std::min(n, first + piece);
      Size in_x = 0, in_y = 0, rest = row;
      for (int d = 1; d < at.dimensions; rest /= at.extents[d++]) {
        in_x += rest % at.extents[d] * at.x_strides[d];
        in_y += rest % at.extents[d] * at.y_strides[d];
      }
      for (int k = 0; x_repeats && k < block_length; ++k) buffer_a[k] = static_cast<C>(x[in_x]);
      for (int k = 0; y_repeats && k < block_length; ++k) buffer_b[k] = static_cast<C>(y[in_y]);
      for (Size j = first; j < last; j += block_length) {
        const C* a = x_repeats ? buffer_a : read_block(buffer_a, x + in_x + j, last - j);
        const C* b = y_repeats ? buffer_b : read_block(buffer_b, y + in_y + j, last - j);
        for (int k = 0; k < block_length; ++k) result[k] = f(a[k], b[k]);
        store_block(z + row * n + j, result, last - j);
      }
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
