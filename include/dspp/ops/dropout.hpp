// SPDX-License-Identifier: Apache-2.0
/// Dropout whose mask is a function of the position in the global tensor: every rank draws its slice, and backward
/// draws it again.
#pragma once

#include <string>

#include <dspp/ops/cpu/dropout.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_window(int dimension, Size origin, Size extent, Size global);
[[noreturn]] void fail_of_dropout(double probability);
}  // namespace detail

/// The position of a rank's slice in one sample. Dimension 0 of the tensor is the batch; entry d is for dimension d +
/// 1. A global extent of 0 means a whole dimension.
struct DropoutWindow {
  Size global[max_rank - 1] = {};
  Size origin[max_rank - 1] = {};
};

/// The random stream of a dropout.
struct DropoutSite {
  PhiloxKey key{};
  Size step = 0;
  std::uint32_t site = 0;
  Size first_sample = 0;  ///< the global number of the batch's first sample
  DropoutWindow window{};
  const StepNumbers* numbers = nullptr;  ///< what is added to step and first_sample; null: nothing
};

/// y = x / (1 - probability) where the element is kept, else 0; x: [batch, ...]. The element's number is its row-major
/// position within the global sample. Its vjp is the same call on dy. In x's block if it is moved in and has no other
/// handle.
///
/// Cost     2 operations an element, and some 30 integer ones for the random bits
/// Memory   none or one tensor like x
/// Throws   Error(usage) for a probability outside of [0, 1); Error(shape) for a window that leaves the global sample
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> dropout(Tensor<T, Rank, D> x, double probability, const DropoutSite& site) {
  static_assert(Rank >= 2, "dspp: dropout needs a tensor of at least two dimensions, the batch first. Reshape it.");
  if (!(probability >= 0 && probability < 1)) detail::fail_of_dropout(probability);
  DropoutWindow window = site.window;
  for (int d = 0; d < Rank - 1; ++d) {
    if (window.global[d] == 0) window.global[d] = x[d + 1];
    if (window.origin[d] < 0 || window.origin[d] + x[d + 1] > window.global[d])
      detail::fail_of_window(d + 1, window.origin[d], x[d + 1], window.global[d]);
  }
  const Shape<Rank> extents = x.shape();
  const T* from = x.data();
  auto y = in_place_or_new(x, "dropout");
  y.memory().count_flops(2.0 * static_cast<double>(extents.count()));
  kernels::DropoutArguments at{.stream = {site.key, site.step, site.first_sample, site.site},
                               .samples = extents[0],
                               .dimensions = Rank - 1,
                               .threshold = static_cast<std::uint32_t>(probability * 0x1p32),
                               .factor = 1 / (1 - probability),
                               .numbers = site.numbers};
  for (int d = 0; d < Rank - 1; ++d) {
    at.extents[d] = extents[d + 1];
    at.global[d] = window.global[d];
    at.origin[d] = window.origin[d];
  }
  note_moved(y, y);
  launch<kernels::Dropout<T>, D>(y.memory(), at, y.data(), from);
  return y;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE void fail_of_window(int dimension, Size origin, Size extent, Size global) {
  fail(ErrorCode::shape, "dspp: dropout needs a window inside the global sample, but dimension " +
                             std::to_string(dimension) + " has elements " + std::to_string(origin) + " to " +
                             std::to_string(origin + extent) + " of " + std::to_string(global) +
                             ". Check the slice's origin.");
}

DSPP_INLINE void fail_of_dropout(double probability) {
  fail(ErrorCode::usage, "dspp: dropout needs a probability from 0 to below 1, but it got " +
                             std::to_string(probability) + ". Give the share of elements to drop.");
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
