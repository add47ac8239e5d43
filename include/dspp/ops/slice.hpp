// SPDX-License-Identifier: Apache-2.0
/// Slices and splits of a tensor along one dimension, and concatenation; each is the other's vjp.
#pragma once

#include <array>
#include <utility>

#include <dspp/ops/cpu/copy.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

namespace detail {

/// Copies x into elements [begin, begin + x[dimension]) of y along a dimension.
template <class T, int Rank, class D>
constexpr void place(const Tensor<T, Rank, D>& y, int dimension, Size begin, const Tensor<T, Rank, D>& x) {
  const Size inner = x.shape().product(dimension + 1, Rank), run = x[dimension] * inner;
  launch<kernels::CopyRuns<T>, D>(x.memory(), x.shape().product(0, dimension), run, y.data_from(begin * inner),
                                  y[dimension] * inner, x.data(), run);
}

}  // namespace detail

/// Elements [begin, begin + extent) along a dimension, as a copy. Its vjp is pad_zero(dy, dimension, begin, whole).
///
/// Cost     copies
/// Memory   the slice
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> slice(const Tensor<T, Rank, D>& x, int dimension, Size begin, Size extent) {
  detail::require_dimension(dimension, Rank, "slice");
  detail::require_range(begin, extent, x[dimension], "slice");
  auto y =
      Tensor<T, Rank, D>::uninitialized(x.shape().with(dimension, extent), x.memory(), Category::activations, "slice");
  const Size inner = x.shape().product(dimension + 1, Rank), run = extent * inner;
  launch<kernels::CopyRuns<T>, D>(x.memory(), x.shape().product(0, dimension), run, y.data(), run,
                                  x.data_from(begin * inner), x[dimension] * inner);
  return y;
}

/// Zeros of extent `whole` along a dimension, with x at [begin, begin + x[dimension]). Its vjp is slice.
///
/// Cost     copies
/// Memory   the padded tensor
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> pad_zero(const Tensor<T, Rank, D>& x, int dimension, Size begin, Size whole) {
  detail::require_dimension(dimension, Rank, "pad_zero");
  detail::require_range(begin, x[dimension], whole, "pad_zero");
  auto y = Tensor<T, Rank, D>::uninitialized(x.shape().with(dimension, whole), x.memory(), Category::activations,
                                             "pad_zero");
  const Size outer = x.shape().product(0, dimension), inner = x.shape().product(dimension + 1, Rank);
  const Size end = begin + x[dimension];
  launch<kernels::ZeroRuns<T>, D>(x.memory(), outer, begin * inner, y.data(), whole * inner);
  launch<kernels::ZeroRuns<T>, D>(x.memory(), outer, (whole - end) * inner, y.data_from(end * inner), whole * inner);
  detail::place(y, dimension, begin, x);
  return y;
}

/// Several tensors of one type. (Not a std::array: nvcc 13.0 forgets to destroy the elements of an array member in
/// constant expressions unless the destructor is written out.)
template <class T, std::size_t Count>
struct Parts {
  T at[Count];
  constexpr ~Parts() {
    for (T& part : at) part.release();
  }
  constexpr const T& operator[](std::size_t i) const { return at[i]; }
  constexpr const T* begin() const { return at; }
  constexpr const T* end() const { return at + Count; }
};

/// The parts one after another along a dimension. Its vjp is split(dy, dimension, their extents).
///
/// Cost     copies
/// Memory   the sum of the parts
/// Throws   Error(shape)
template <class T, int Rank, class D, std::size_t Count>
constexpr Tensor<T, Rank, D> concat(const Tensor<T, Rank, D> (&parts)[Count], int dimension) {
  detail::require_dimension(dimension, Rank, "concat");
  Size whole = 0;
  for (const auto& part : parts) {
    require_same_shape(part.shape().with(dimension, 0), parts[0].shape().with(dimension, 0), "concat");
    whole += part[dimension];
  }
  auto y = Tensor<T, Rank, D>::uninitialized(parts[0].shape().with(dimension, whole), parts[0].memory(),
                                             Category::activations, "concat");
  Size begin = 0;
  for (const auto& part : parts) {
    detail::place(y, dimension, begin, part);
    begin += part[dimension];
  }
  return y;
}

template <class T, int Rank, class D, std::size_t Count>
constexpr Tensor<T, Rank, D> concat(const Parts<Tensor<T, Rank, D>, Count>& parts, int dimension) {
  return concat(parts.at, dimension);
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> concat(const Tensor<T, Rank, D>& a, const Tensor<T, Rank, D>& b, int dimension) {
  const Tensor<T, Rank, D> parts[2] = {a, b};
  return concat(parts, dimension);
}

namespace detail {

/// The sum of the first `count` extents.
template <std::size_t Count>
constexpr Size sum_before(const std::array<Size, Count>& extents, std::size_t count) {
  Size sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += extents[i];
  return sum;
}

/// The parts as one braced value: g++ 12 frees the blocks of a named one twice in constant expressions.
template <class T, int Rank, class D, std::size_t Count, std::size_t... Part>
constexpr Parts<Tensor<T, Rank, D>, Count> slices(const Tensor<T, Rank, D>& x, int dimension,
                                                  const std::array<Size, Count>& extents,
                                                  std::index_sequence<Part...>) {
  return {{slice(x, dimension, sum_before(extents, Part), extents[Part])...}};
}

}  // namespace detail

/// Parts of the given extents along a dimension, as copies. Its vjp is concat.
///
/// Cost     copies
/// Memory   x once more
/// Throws   Error(shape) unless the extents add up
template <class T, int Rank, class D, std::size_t Count>
constexpr Parts<Tensor<T, Rank, D>, Count> split(const Tensor<T, Rank, D>& x, int dimension,
                                                 const std::array<Size, Count>& extents) {
  detail::require_dimension(dimension, Rank, "split");
  detail::require_length(detail::sum_before(extents, Count), x[dimension], "split", "parts that together are");
  return detail::slices(x, dimension, extents, std::make_index_sequence<Count>{});
}

/// Count parts of one extent.
template <std::size_t Count, class T, int Rank, class D>
constexpr Parts<Tensor<T, Rank, D>, Count> split(const Tensor<T, Rank, D>& x, int dimension) {
  detail::require_dimension(dimension, Rank, "split");
  std::array<Size, Count> extents{};
  for (Size& extent : extents) extent = x[dimension] / static_cast<Size>(Count);
  return split(x, dimension, extents);
}

}  // namespace dspp::ops
