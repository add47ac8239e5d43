// SPDX-License-Identifier: Apache-2.0
/// Copies of boxes of elements: runs for slices, strides for transposes.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// `outer` runs of `run` elements each; run i begins at to + i * to_stride and from + i * from_stride.
template <class T>
struct Kernel<kernels::CopyRuns<T>, Cpu> {
  static void run(Size outer, Size run, T* to, Size to_stride, const T* from, Size from_stride);
};

/// As copy_runs, with zeros.
template <class T>
struct Kernel<kernels::ZeroRuns<T>, Cpu> {
  static void run(Size outer, Size run, T* to, Size to_stride);
};

template <class T>
struct Kernel<kernels::Exchange<T>, Cpu> {
  static void run(Size count, T* x, T* y);
};

/// If the last dimension has stride 1, elements are copied in runs. Otherwise squares of 16 x 16 elements of the two
/// dimensions that are contiguous in x and in y go through a local tile, so that cache lines are used whole.
template <class T>
struct Kernel<kernels::CopyStrided<T>, Cpu> {
  static void run(const kernels::Strides& at, T* y, const T* x);
};

template <class T>
struct Kernel<kernels::SumRepeats<T>, Cpu> {
  static void run(Size rows, Size n, Size times, T* y, const T* x);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <algorithm>

#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

namespace detail {

/// The dimensions that are walked element by element, innermost first.
struct Walk {
  int dimensions = 0;
  Size extents[8] = {}, y_strides[8] = {}, x_strides[8] = {};
  Size count = 1;

  void add(Size extent, Size y_stride, Size x_stride) {
    extents[dimensions] = extent;
    y_strides[dimensions] = y_stride;
    x_strides[dimensions++] = x_stride;
    count *= extent;
  }
  /// Offsets of the i-th run in y and in x.
  void offsets(Size i, Size& in_y, Size& in_x) const {
    in_y = in_x = 0;
    for (int d = 0; d < dimensions; ++d) {
      in_y += i % extents[d] * y_strides[d];
      in_x += i % extents[d] * x_strides[d];
      i /= extents[d];
    }
  }
};

/// y[a * y_stride + j] = x[a + j * x_stride] for a < rows <= 16, j < columns <= 16.
template <class T>
void transpose_tile(Size rows, Size columns, T* y, Size y_stride, const T* x, Size x_stride) {
  T tile[16][16];
  for (Size j = 0; j < columns; ++j)
    for (Size a = 0; a < rows; ++a) tile[j][a] = x[a + j * x_stride];
  for (Size a = 0; a < rows; ++a)
    for (Size j = 0; j < columns; ++j) y[a * y_stride + j] = tile[j][a];
}

}  // namespace detail

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::CopyRuns<T>, Cpu>::run(Size outer, Size run, T* to, Size to_stride, const T* from,
                                            Size from_stride) {
  using namespace cpu;
  parallel_for(outer, std::max<Size>(1, 16384 / std::max<Size>(run, 1)), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) std::copy_n(from + i * from_stride, run, to + i * to_stride);
  });
}

template <class T>
void Kernel<kernels::ZeroRuns<T>, Cpu>::run(Size outer, Size run, T* to, Size to_stride) {
  using namespace cpu;
  parallel_for(outer, std::max<Size>(1, 16384 / std::max<Size>(run, 1)), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) std::fill_n(to + i * to_stride, run, T{});
  });
}

template <class T>
void Kernel<kernels::Exchange<T>, Cpu>::run(Size count, T* x, T* y) {
  cpu::parallel_for(count, 16384, [=](Size begin, Size end) { std::swap_ranges(x + begin, x + end, y + begin); });
}

template <class T>
void Kernel<kernels::CopyStrided<T>, Cpu>::run(const kernels::Strides& at, T* y, const T* x) {
  using namespace cpu;
  const int dimensions = at.dimensions;
  const Size *extents = at.extents, *strides = at.strides;
  const Size n = extents[dimensions - 1], step = strides[dimensions - 1];
  cpu::detail::Walk walk;
  Size y_stride = n, tall = 1, tall_stride = 0;  // the other dimension of the tiles
  for (int d = dimensions - 2; d >= 0; --d) {
    if (strides[d] == 1 && step != 1 && tall_stride == 0) {
      tall = extents[d];
      tall_stride = y_stride;
    } else {
      walk.add(extents[d], y_stride, strides[d]);
    }
    y_stride *= extents[d];
  }
  const Size bands = (tall + 15) / 16;
  parallel_for(walk.count * bands, std::max<Size>(1, 4096 / std::max<Size>(n, 1)), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      Size in_y = 0, in_x = 0;
      walk.offsets(i / bands, in_y, in_x);
      const Size a = i % bands * 16, rows = std::min<Size>(16, tall - a);
      if (step == 1)
        std::copy_n(x + in_x, n, y + in_y);
      else
        for (Size j = 0; j < n; j += 16)
          cpu::detail::transpose_tile(rows, std::min<Size>(16, n - j), y + in_y + a * tall_stride + j, tall_stride,
                                      x + in_x + a + j * step, step);
    }
  });
}

template <class T>
void Kernel<kernels::SumRepeats<T>, Cpu>::run(Size rows, Size n, Size times, T* y, const T* x) {
  cpu::parallel_for(rows, std::max<Size>(1, 16384 / std::max<Size>(n * times, 1)), [=](Size begin, Size end) {
    for (Size row = begin; row < end; ++row)
      for (Size j = 0; j < n; ++j) {
        const T* const first = x + row * times * n + j;
        auto sum = static_cast<Compute<T>>(*first);
        for (Size i = 1; i < times; ++i) sum += static_cast<Compute<T>>(first[i * n]);
        y[row * n + j] = static_cast<T>(sum);
      }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
