// SPDX-License-Identifier: Apache-2.0
/// Sums, means and maxima along one dimension, with their vjps.
#pragma once

#include <string>
#include <utility>

#include <dspp/ops/cpu/reduce_along.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_max(Extents x, int dimension);

/// The dimensions of a shape that are summed and those that are not; adjacent ones of a kind become one.
template <int Rank, std::size_t Flags>
constexpr kernels::SumExtents sum_extents(const Shape<Rank>& x, const bool (&summed)[Flags]) {
  kernels::SumExtents at{};
  Size stride = 1;
  bool first = true, before = false;
  for (int d = Rank - 1; d >= 0; stride *= x[d--]) {
    if (x[d] == 1) continue;
    const bool sums = summed[d], fresh = first || sums != before;
    int& count = sums ? at.summed : at.kept;
    if (fresh) {
      (sums ? at.summed_extents : at.kept_extents)[count] = 1;
      (sums ? at.summed_strides : at.kept_strides)[count++] = stride;
    }
    (sums ? at.summed_extents : at.kept_extents)[count - 1] *= x[d];
    first = false, before = sums;
  }
  return at;
}

/// The shape with one dimension left out.
template <int Rank>
constexpr Shape<Rank - 1> without(const Shape<Rank>& shape, int dimension) {
  Shape<Rank - 1> rest{};
  for (int d = 0; d + 1 < Rank; ++d) rest[d] = shape[d < dimension ? d : d + 1];
  return rest;
}

}  // namespace detail

/// The sum along a dimension, which is left out, over a divisor. Its vjp is dy / divisor, repeated.
///
/// Cost     an operation an element of x
/// Memory   the result
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr Tensor<T, Rank - 1, D> sum_along(const Tensor<T, Rank, D>& x, int dimension, double divisor = 1) {
  detail::require_dimension(dimension, Rank, "sum_along");
  bool summed[static_cast<std::size_t>(Rank)] = {};
  summed[dimension] = true;
  auto y = Tensor<T, Rank - 1, D>::uninitialized(detail::without(x.shape(), dimension), x.memory(),
                                                 Category::activations, "sum_along");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x, y);
  launch<kernels::SumAlong<T>, D>(x.memory(), detail::sum_extents(x.shape(), summed), divisor, y.data(), x.data());
  return y;
}

/// The largest elements along a dimension, and where the first of each is.
template <class T, int Rank, class D>
struct LargestAlong {
  Tensor<T, Rank, D> y;
  Tensor<std::int32_t, Rank, D> place;
};

/// The largest element along a dimension, which is left out; NaN is larger than any number.
///
/// Cost     an operation an element of x
/// Memory   the result, and a number of 32 bits for each of its elements
/// Throws   Error(shape) if there is none
template <class T, int Rank, class D>
constexpr LargestAlong<T, Rank - 1, D> max_along(const Tensor<T, Rank, D>& x, int dimension) {
  detail::require_dimension(dimension, Rank, "max_along");
  const auto shape = detail::without(x.shape(), dimension);
  if (x[dimension] == 0 && shape.count() > 0) detail::fail_of_max(x.shape(), dimension);
  auto y = Tensor<T, Rank - 1, D>::uninitialized(shape, x.memory(), Category::activations, "max_along");
  auto place = Tensor<std::int32_t, Rank - 1, D>::uninitialized(shape, x.memory(), Category::activations, "max_along");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x);
  launch<kernels::MaxAlong<T>, D>(x.memory(), x.shape().product(0, dimension), x[dimension],
                                  x.shape().product(dimension + 1, Rank), y.data(), place.data(), x.data());
  return {std::move(y), std::move(place)};
}

/// dx of the given shape: dy where the largest element was, else 0.
///
/// Cost     one pass over dx
/// Memory   dx
template <class T, int Rank, class D>
constexpr Tensor<T, Rank + 1, D> max_along_vjp(const Shape<Rank + 1>& shape, int dimension,
                                               const Tensor<std::int32_t, Rank, D>& place,
                                               const Tensor<T, Rank, D>& dy) {
  require_same_shape(dy.shape(), place.shape(), "max_along_vjp");
  auto dx = Tensor<T, Rank + 1, D>::uninitialized(shape, dy.memory(), Category::activations, "max_along_vjp");
  note_moved(dx);
  launch<kernels::MaxAlongVjp<T>, D>(dy.memory(), shape.product(0, dimension), shape[dimension],
                                     shape.product(dimension + 1, Rank + 1), dx.data(), dy.data(),
                                     static_cast<const std::int32_t*>(place.data()));
  return dx;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_max(Extents x, int dimension) {
  fail(ErrorCode::shape, "dspp: max needs at least one element along its dimension, but " + to_string(x) +
                             " has none along dimension " + std::to_string(dimension) + ". Check the extents.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
