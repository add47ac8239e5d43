// SPDX-License-Identifier: Apache-2.0
/// The in-place rule of the vjps.
#pragma once

#include <utility>

#include <dspp/ops/shape_checks.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::ops {

/// The output of a vjp: dy's block if it has no other handle, else a new one, and dy keeps its elements. The same
/// decision on every device.
///
/// Memory   none, or that of dy once more
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> in_place_or_new(Tensor<T, Rank, D>& dy, const char* label) {
  if (dy.unique()) return std::move(dy);
  return Tensor<T, Rank, D>::uninitialized(dy.shape(), dy.memory(), Category::activations, label);
}

/// The output of a vjp that is added to `earlier`, the gradient that x has already (empty: none): its block if it has
/// no other handle, else as above. So tape.give adds two gradients, too.
///
/// Memory   none, or that of dy once more
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> in_place_or_new(Tensor<T, Rank, D>& earlier, Tensor<T, Rank, D>& dy, const char* label) {
  if (earlier.unique()) return std::move(earlier);
  return in_place_or_new(dy, label);
}

namespace detail {

/// The first element of a tensor that may be empty: then, and on paper, null.
template <class T, int Rank, class D>
constexpr T* data_or_null(const Tensor<T, Rank, D>& x) {
  return x ? x.data() : nullptr;
}

}  // namespace detail
}  // namespace dspp::ops
