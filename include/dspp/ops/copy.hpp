// SPDX-License-Identifier: Apache-2.0
/// Copies between existing tensors.
#pragma once

#include <dspp/ops/cpu/copy.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

/// `outer` runs of `run` elements, from x at `x_begin` on, `x_stride` apart, to y likewise.
struct Runs {
  Size outer = 1, run = 0;
  Size y_begin = 0, y_stride = 0;
  Size x_begin = 0, x_stride = 0;
};

/// Cost     copies
template <class T, int YRank, int XRank, class D>
constexpr void copy_runs(const Tensor<T, YRank, D>& y, const Tensor<T, XRank, D>& x, const Runs& runs) {
  launch<kernels::CopyRuns<T>, D>(x.memory(), runs.outer, runs.run, y.data_from(runs.y_begin), runs.y_stride,
                                  x.data_from(runs.x_begin), runs.x_stride);
}

/// All of x to elements [begin, begin + x.count()) of y.
///
/// Cost     copies
template <class T, int YRank, int XRank, class D>
constexpr void copy_into(const Tensor<T, YRank, D>& y, Size begin, const Tensor<T, XRank, D>& x) {
  copy_runs(y, x, {.run = x.count(), .y_begin = begin});
}

/// Exchanges the elements of x and y, which do not overlap.
///
/// Cost     reads and writes both once
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr void exchange(const Tensor<T, Rank, D>& x, const Tensor<T, Rank, D>& y) {
  require_same_shape(x.shape(), y.shape(), "exchange");
  note_moved(x, x, y, y);
  launch<kernels::Exchange<T>, D>(x.memory(), x.count(), x.data(), y.data());
}

/// y, seen as [second, first, chunk], gets x, seen as [first, second, chunk], with the two dimensions exchanged.
///
/// Cost     copies
template <class T, int YRank, int XRank, class D>
constexpr void exchange_leading(const Tensor<T, YRank, D>& y, const Tensor<T, XRank, D>& x, Size first, Size second,
                                Size chunk) {
  const kernels::Strides at{.dimensions = 3, .extents = {second, first, chunk}, .strides = {chunk, second * chunk, 1}};
  note_moved(x, y);
  launch<kernels::CopyStrided<T>, D>(x.memory(), at, y.data(), x.data());
}

}  // namespace dspp::ops
