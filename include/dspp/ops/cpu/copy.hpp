// SPDX-License-Identifier: Apache-2.0
/// Copies of boxes of elements: runs for slices, strides for transposes.
#pragma once

#include <algorithm>

#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

/// `outer` runs of `run` elements each; run i begins at to + i * to_stride and from + i * from_stride.
template <class T>
void copy_runs(Size outer, Size run, T* to, Size to_stride, const T* from, Size from_stride) {
  parallel_for(outer, std::max<Size>(1, 16384 / std::max<Size>(run, 1)), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) std::copy_n(from + i * from_stride, run, to + i * to_stride);
  });
}

/// As copy_runs, with zeros.
template <class T>
void zero_runs(Size outer, Size run, T* to, Size to_stride) {
  parallel_for(outer, std::max<Size>(1, 16384 / std::max<Size>(run, 1)), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) std::fill_n(to + i * to_stride, run, T{});
  });
}

/// y, row-major of the given extents, takes its elements from x at strides[d] along dimension d.
template <class T>
void copy_strided(int dimensions, const Size* extents, const Size* strides, T* y, const T* x) {
  const int last = dimensions - 1;
  Size rows = 1;
  for (int d = 0; d < last; ++d) rows *= extents[d];
  const Size n = extents[last], step = strides[last];
  parallel_for(rows, std::max<Size>(1, 16384 / std::max<Size>(n, 1)), [=](Size begin, Size end) {
    for (Size row = begin; row < end; ++row) {
      Size rest = row, from = 0;
      for (int d = last - 1; d >= 0; --d) {
        from += rest % extents[d] * strides[d];
        rest /= extents[d];
      }
      for (Size j = 0; j < n; ++j) y[row * n + j] = x[from + j * step];
    }
  });
}

}  // namespace dspp::cpu
