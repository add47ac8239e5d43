// SPDX-License-Identifier: Apache-2.0
/// A tensor with its dimensions in another order.
#pragma once

#include <array>
#include <string>

#include <dspp/ops/cpu/copy.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_permutation(std::size_t dimension, int times, std::size_t rank);

template <std::size_t Rank>
constexpr void require_permutation(const std::array<int, Rank>& permutation) {
  for (std::size_t d = 0; d < Rank; ++d) {
    int times = 0;
    for (const int p : permutation) times += p == static_cast<int>(d);
    if (times != 1) fail_of_permutation(d, times, Rank);
  }
}
}  // namespace detail

/// y with y.shape()[d] == x.shape()[permutation[d]], as a copy. Its vjp is transpose(dy, inverse(permutation)).
///
/// Cost     copies
/// Memory   one tensor like x
/// Throws   Error(shape) unless the permutation is one
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> transpose(const Tensor<T, Rank, D>& x,
                                       const std::array<int, static_cast<std::size_t>(Rank)>& permutation) {
  detail::require_permutation(permutation);
  Shape<Rank> turned{};
  kernels::Strides at{.dimensions = Rank};
  for (int d = 0; d < Rank; ++d) {
    const int from = permutation[static_cast<std::size_t>(d)];
    turned[d] = x[from];
    at.extents[d] = x[from];
    at.strides[d] = x.shape().product(from + 1, Rank);
  }
  auto y = Tensor<T, Rank, D>::uninitialized(turned, x.memory(), Category::activations, "transpose");
  note_moved(x, y);
  launch<kernels::CopyStrided<T>, D>(x.memory(), at, y.data(), x.data());
  return y;
}

/// The permutation that undoes one.
template <std::size_t Rank>
constexpr std::array<int, Rank> inverse(const std::array<int, Rank>& permutation) {
  std::array<int, Rank> undone{};
  for (std::size_t d = 0; d < Rank; ++d) undone[static_cast<std::size_t>(permutation[d])] = static_cast<int>(d);
  return undone;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_permutation(std::size_t dimension, int times, std::size_t rank) {
  fail(ErrorCode::shape, "dspp: transpose needs each dimension once, but dimension " + std::to_string(dimension) +
                             " is given " + std::to_string(times) + " times. List 0 to " + std::to_string(rank - 1) +
                             " in the new order.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
