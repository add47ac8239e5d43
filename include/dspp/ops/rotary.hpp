// SPDX-License-Identifier: Apache-2.0
/// Rotary position embedding: pairs of features of queries and keys turn by an angle that grows with the position.
#pragma once

#include <string>

#include <dspp/ops/cpu/rotary.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/rope_scaling.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_rotary_features(Size head_dim);
[[noreturn]] void fail_of_rotary_heads(Size head_dim, Size turned, Size columns);
}  // namespace detail

/// The cosines and sines of the positions [first, first + count): [count, 2, head_dim / 2], angle j of position p being
/// p theta^(-2j / head_dim), or p times a frequency that `scaling` changes (ops/rope_scaling.hpp).
///
/// The values depend on the position alone, under RopeKind::dynamic also on the sequence, which ends at first + count:
/// computed in f64, rounded once.
///
/// Cost     count head_dim products, and a sine for every 32nd of them; not counted as operations
/// Memory   the table, in Compute<T>
/// Throws   Error(shape) unless head_dim is even
template <class T, class D>
constexpr Tensor<Compute<T>, 3, D> rotary_table(Size first, Size count, Size head_dim, double theta, Memory<D>& memory,
                                                const RopeScaling& scaling = {});

/// y[j] = x[j] cos - x[j + h] sin, y[j + h] = x[j + h] cos + x[j] sin for each head of h = head_dim / 2 pairs and each
/// position: the pairs lie half a head apart, as in Hugging Face's Llama. In x's block if it is moved in and has no
/// other handle.
///
///   x [batch, sequence, ..., n]   table [sequence, 2, head_dim / 2]
///
/// The heads are the first `rotated` of the elements that a position has (0: all); the others stay.
///
/// Cost     3 operations a rotated element
/// Memory   none or one tensor like x
/// Throws   Error(shape)
/// Source   Su et al. 2021, RoFormer, arXiv:2104.09864
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> rotary(Tensor<T, Rank, D> x, const Tensor<Compute<T>, 3, D>& table, Size rotated = 0);

/// The gradient: dy rotated back by the same angles, under yarn's factor too, in place under the same rule.
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> rotary_vjp(Tensor<T, Rank, D> dy, const Tensor<Compute<T>, 3, D>& table, Size rotated = 0);

// ---------------------------------------------------------------------------------------------------------------------

template <class T, class D>
constexpr Tensor<Compute<T>, 3, D> rotary_table(Size first, Size count, Size head_dim, double theta, Memory<D>& memory,
                                                const RopeScaling& scaling) {
  if (head_dim < 2 || head_dim % 2 != 0) detail::fail_of_rotary_features(head_dim);
  auto table = Tensor<Compute<T>, 3, D>::uninitialized(shape(count, Size{2}, head_dim / 2), memory,
                                                       Category::activations, "rotary");
  launch<kernels::RotaryTable<Compute<T>>, D>(memory, first, count, head_dim, theta, scaling, table.data());
  return table;
}

namespace detail {
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> rotate(Tensor<T, Rank, D> x, const Tensor<Compute<T>, 3, D>& table, Size rotated,
                                    double sign) {
  static_assert(Rank >= 3);
  const Shape<Rank> extents = x.shape();
  const Size columns = extents.product(2, Rank), head_dim = 2 * table[2];
  const Size turned = rotated > 0 ? rotated : columns;
  require_length(table[0], extents[1], "rotary", "a table of positions");
  if (turned % head_dim != 0 || turned > columns) fail_of_rotary_heads(head_dim, turned, columns);
  const T* from = x.data();
  auto y = in_place_or_new(x, "rotary");
  y.memory().count_flops(3.0 * static_cast<double>(extents[0] * extents[1] * turned));
  const kernels::RotaryExtents at{extents[0] * extents[1], extents[1], columns, turned, head_dim};
  note_moved(y, y);
  launch<kernels::Rotary<T>, D>(y.memory(), at, y.data(), from, table.data(), sign);
  return y;
}
}  // namespace detail

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> rotary(Tensor<T, Rank, D> x, const Tensor<Compute<T>, 3, D>& table, Size rotated) {
  return detail::rotate(std::move(x), table, rotated, 1);
}

template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> rotary_vjp(Tensor<T, Rank, D> dy, const Tensor<Compute<T>, 3, D>& table, Size rotated) {
  return detail::rotate(std::move(dy), table, rotated, -1);
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE void fail_of_rotary_features(Size head_dim) {
  fail(ErrorCode::shape, "dspp: rotary needs heads of an even number of features, but they have " +
                             std::to_string(head_dim) + ". Change head_dim.");
}

DSPP_INLINE void fail_of_rotary_heads(Size head_dim, Size turned, Size columns) {
  fail(ErrorCode::shape, "dspp: rotary needs whole heads of " + std::to_string(head_dim) + " features, but it got " +
                             std::to_string(turned) + " of the " + std::to_string(columns) +
                             " elements of a position. Choose a head_dim that divides them.");
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
