// SPDX-License-Identifier: Apache-2.0
/// The gate of a gated feed-forward layer, and its vjp.
#pragma once

#include <string>

#include <dspp/ops/cpu/swiglu.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/pointwise/swiglu.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_gates(Extents x);

template <int Rank>
constexpr void require_gates(const Shape<Rank>& x) {
  if (x[-1] % 2 != 0) fail_of_gates(x);
}
}  // namespace detail

/// y = silu(a) b, a and b the first and the last half of x along the last dimension.
///
///   x [..., 2 n] -> y [..., n]
///
/// Cost     5 operations an element of y
/// Memory   y
/// Throws   Error(shape)
/// Source   Shazeer 2020, GLU Variants Improve Transformer
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> swiglu(const Tensor<T, Rank, D>& x) {
  detail::require_gates(x.shape());
  const Size n = x[-1] / 2;
  auto y = Tensor<T, Rank, D>::uninitialized(x.shape().with(-1, n), x.memory(), Category::activations, "swiglu");
  x.memory().count_flops(pointwise::Swiglu::flops * static_cast<double>(y.count()));
  note_moved(x, y);
  launch<kernels::Swiglu<T>, D>(x.memory(), x.shape().rows(), n, y.data(), x.data());
  return y;
}

/// dx, both halves: twice as large as dy, so never in place.
///
/// Cost     13 operations an element of dy
/// Memory   one tensor like x
/// Throws   Error(shape)
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> swiglu_vjp(const Tensor<T, Rank, D>& x, const Tensor<T, Rank, D>& dy) {
  detail::require_gates(x.shape());
  const Size n = x[-1] / 2;
  require_same_shape(dy.shape(), x.shape().with(-1, n), "swiglu_vjp");
  auto dx = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, "swiglu_vjp");
  x.memory().count_flops(pointwise::Swiglu::flops_vjp * static_cast<double>(dy.count()));
  note_moved(x, dx, dy);
  launch<kernels::SwigluVjp<T>, D>(x.memory(), x.shape().rows(), n, dx.data(), x.data(), dy.data());
  return dx;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_gates(Extents x) {
  fail(ErrorCode::shape, "dspp: swiglu needs as many gates as values, but its input is " + to_string(x) +
                             ": an odd number. Give it both halves, one product in two groups.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
