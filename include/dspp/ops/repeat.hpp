// SPDX-License-Identifier: Apache-2.0
/// Repeats of rows, and sums of repeats; each is the other's vjp.
#pragma once

#include <string>
#include <utility>

#include <dspp/ops/cpu/copy.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_repeats(Size rows, Size times);
}  // namespace detail

/// Each row repeated `times` times in succession. Its vjp is sum_repeats(dy, times).
///
///   x [rows, n] -> [rows times, n]
///
/// Cost     copies; none for `times` of 1
/// Memory   the result
template <class T, class D>
constexpr Tensor<T, 2, D> repeat(Tensor<T, 2, D> x, Size times) {
  if (times == 1) return x;
  const Size rows = x[0], n = x[1];
  auto y = Tensor<T, 2, D>::uninitialized(shape(rows * times, n), x.memory(), Category::activations, "repeat");
  for (Size i = 0; i < times; ++i)
    launch<kernels::CopyRuns<T>, D>(x.memory(), rows, n, y.data_from(i * n), times * n, x.data(), n);
  return y;
}

/// The sum of each `times` successive rows, in order, bf16 and f16 in f32 and rounded once.
///
///   x [rows times, n] -> [rows, n]
///
/// Cost     an operation an element; none for `times` of 1
/// Memory   the result
/// Throws   Error(shape) unless `times` divides the rows
template <class T, class D>
constexpr Tensor<T, 2, D> sum_repeats(Tensor<T, 2, D> x, Size times) {
  if (times == 1) return x;
  if (x[0] % times != 0) detail::fail_of_repeats(x[0], times);
  const Size rows = x[0] / times, n = x[1];
  auto y = Tensor<T, 2, D>::uninitialized(shape(rows, n), x.memory(), Category::activations, "sum_repeats");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x, y);
  launch<kernels::SumRepeats<T>, D>(x.memory(), rows, n, times, y.data(), x.data());
  return y;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_repeats(Size rows, Size times) {
  fail(ErrorCode::shape, "dspp: sum_repeats needs rows that the repeats divide, but got " + std::to_string(rows) +
                             " and " + std::to_string(times) + ". Check the extents.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
