// SPDX-License-Identifier: Apache-2.0
/// The layout of elements that are whole numbers of few bits, in blocks with one scale each.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// Parts of `count` elements each. A part is the scales of its blocks, then the numbers, in two's complement, of 4 bits
/// the even ones in the lower half of a byte; padded, so that parts follow one another.
///
/// An element x is scale * n, |n| <= levels(): scale is the largest |x| of its block over levels(), n the nearest whole
/// number to x / scale, ties to even. So |x - scale * n| <= scale / 2, up to rounding. A block with an element that is
/// not finite is NaN; one whose scale would be subnormal is 0.
struct QuantizedParts {
  Size count = 0;
  int bits = 8;         ///< 8 or 4
  int scale_bytes = 4;  ///< of f32, or f64 for elements of f64

  static constexpr Size block = 256;  ///< elements, of a part's last block fewer
  static constexpr Size alignment = 64;

  DSPP_HOST_DEVICE constexpr int levels() const { return (1 << (bits - 1)) - 1; }
  DSPP_HOST_DEVICE constexpr Size blocks() const { return (count + block - 1) / block; }
  DSPP_HOST_DEVICE constexpr Size numbers_at() const { return blocks() * scale_bytes; }
  DSPP_HOST_DEVICE constexpr Size bytes() const {
    const Size used = numbers_at() + (count * bits + 7) / 8;
    return (used + alignment - 1) / alignment * alignment;
  }
  DSPP_HOST_DEVICE constexpr Size elements_of(Size b) const {
    return count - b * block < block ? count - b * block : block;
  }
};

}  // namespace dspp
