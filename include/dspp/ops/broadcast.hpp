// SPDX-License-Identifier: Apache-2.0
/// Arithmetic of tensors that repeat elements along dimensions, and the sums that are its vjps.
#pragma once

#include <algorithm>
#include <string>

#include <dspp/ops/cpu/copy.hpp>
#include <dspp/ops/cpu/library_pointwise.hpp>
#include <dspp/ops/reduce_along.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_broadcast(Extents x, Extents y, const char* who);
[[noreturn]] void fail_of_broadcast_to(Extents from, Extents to);

/// Extent d, counted from the last, of a shape that has ones before its first.
template <int Rank>
constexpr Size extent_from_last(const Shape<Rank>& shape, int d) {
  return d < Rank ? shape[Rank - 1 - d] : 1;
}

/// The extents of a result, each of both operands where they are equal, else of that which is not 1.
template <int RankX, int RankY>
constexpr auto broadcast_shape(const Shape<RankX>& x, const Shape<RankY>& y, const char* who) {
  constexpr int Rank = std::max(RankX, RankY);
  Shape<Rank> z{};
  for (int d = 0; d < Rank; ++d) {
    const Size a = extent_from_last(x, d), b = extent_from_last(y, d);
    if (a != b && a != 1 && b != 1) fail_of_broadcast(x, y, who);
    z[Rank - 1 - d] = a == 1 ? b : a;
  }
  return z;
}

/// The strides of both operands in the result; adjacent dimensions that are repeated alike become one.
template <int Rank, int RankX, int RankY>
constexpr kernels::Repeats repeats_of(const Shape<Rank>& z, const Shape<RankX>& x, const Shape<RankY>& y) {
  kernels::Repeats at{.dimensions = 1};
  at.extents[0] = at.x_strides[0] = at.y_strides[0] = 1;
  Size x_count = 1, y_count = 1;  // elements of the dimensions so far
  bool before_x = true, before_y = true, first = true;
  for (int d = 0; d < Rank; ++d) {
    const Size n = z[Rank - 1 - d];
    if (n == 1) continue;
    const bool has_x = extent_from_last(x, d) == n, has_y = extent_from_last(y, d) == n;
    if (!first && (has_x != before_x || has_y != before_y)) ++at.dimensions;
    Size& extent = at.extents[at.dimensions - 1];
    if (first || has_x != before_x || has_y != before_y) {
      extent = 1;
      at.x_strides[at.dimensions - 1] = has_x ? x_count : 0;
      at.y_strides[at.dimensions - 1] = has_y ? y_count : 0;
    }
    extent *= n;
    if (has_x) x_count *= n;
    if (has_y) y_count *= n;
    before_x = has_x, before_y = has_y, first = false;
  }
  return at;
}

}  // namespace detail

/// z[i, ...] = f(x[i, ...], y[i, ...]) for one of the functors of dspp::pointwise. Dimensions are counted from the
/// last; one of extent 1, or one that an operand lacks, is repeated. The vjps of a repeated operand are sum_to.
///
///   x [b, s, n], y [n] or [s, 1] or [b, 1, n] -> z [b, s, n]
///
/// Cost     an operation an element of z
/// Memory   z
/// Throws   Error(shape) unless extents are equal or 1
template <class F, class T, int RankX, int RankY, class D>
constexpr auto combine(F f, const Tensor<T, RankX, D>& x, const Tensor<T, RankY, D>& y, const char* who) {
  const auto shape = detail::broadcast_shape(x.shape(), y.shape(), who);
  auto z = Tensor<T, std::max(RankX, RankY), D>::uninitialized(shape, x.memory(), Category::activations, who);
  x.memory().count_flops(static_cast<double>(z.count()));
  note_moved(x, y, z);
  launch<kernels::PointwiseBroadcast<F, T>, D>(x.memory(), f, detail::repeats_of(shape, x.shape(), y.shape()), z.data(),
                                               x.data(), y.data());
  return z;
}

/// The sum of x over the dimensions along which `shape` was repeated to x's shape; x itself if none was.
///
/// Cost     an operation an element of x
/// Memory   the result
template <class T, int To, int Rank, class D>
constexpr Tensor<T, To, D> sum_to(Tensor<T, Rank, D> x, const Shape<To>& shape) {
  static_assert(To <= Rank);
  bool summed[static_cast<std::size_t>(Rank == 0 ? 1 : Rank)] = {}, any = false;
  for (int d = 0; d < Rank; ++d) {
    const int own = d - (Rank - To);
    summed[d] = own < 0 || shape[own < 0 ? 0 : own] != x[d];
    any |= summed[d] && x[d] != 1;
  }
  if (!any) return x.reshape(shape);
  auto y = Tensor<T, To, D>::uninitialized(shape, x.memory(), Category::activations, "sum_to");
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(x, y);
  launch<kernels::SumAlong<T>, D>(x.memory(), detail::sum_extents(x.shape(), summed), 1.0, y.data(), x.data());
  return y;
}

/// x with its dimensions of extent 1, and those that it lacks, repeated to `shape`. Its vjp is sum_to(dy, x.shape()).
///
/// Cost     copies
/// Memory   the result
/// Throws   Error(shape)
template <class T, int To, int Rank, class D>
constexpr Tensor<T, To, D> broadcast_to(const Tensor<T, Rank, D>& x, const Shape<To>& shape) {
  static_assert(Rank <= To);
  kernels::Strides at{.dimensions = std::max(To, 1)};
  Size stride = 1;
  at.extents[0] = at.strides[0] = 1;  // of a single number
  for (int d = 0; d < To; ++d) {
    const Size own = detail::extent_from_last(x.shape(), d), n = shape[To - 1 - d];
    if (own != n && own != 1) detail::fail_of_broadcast_to(x.shape(), shape);
    at.extents[To - 1 - d] = n;
    at.strides[To - 1 - d] = own == n ? stride : 0;
    stride *= own;
  }
  auto y = Tensor<T, To, D>::uninitialized(shape, x.memory(), Category::activations, "broadcast_to");
  note_moved(y, y);
  launch<kernels::CopyStrided<T>, D>(x.memory(), at, y.data(), x.data());
  return y;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE void fail_of_broadcast(Extents x, Extents y, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who +
                             " needs extents that are equal or 1, counted from the last dimension, but they are " +
                             to_string(x) + " and " + to_string(y) + ". Reshape one of them first.");
}

DSPP_INLINE void fail_of_broadcast_to(Extents from, Extents to) {
  fail(ErrorCode::shape,
       "dspp: broadcast_to needs extents that are equal or 1, counted from the last dimension, "
       "but goes from " +
           to_string(from) + " to " + to_string(to) + ". Reshape the value first.");
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
