// SPDX-License-Identifier: Apache-2.0
/// The cosine and the sine of a rotary angle, in f64: what every device's table is made of.
#pragma once

#include <cmath>

#include <dspp/base/types.hpp>

namespace dspp::ops {

/// Angles are split into those of position / 32 * 32 and of position % 32: some 64 sines a pair instead of one each.
inline constexpr Size rotary_stride = 32;

struct RotaryTurn {
  double cosine, sine;

  /// Both parts by `factor`, which is 1 but for a scaling's.
  DSPP_HOST_DEVICE [[gnu::always_inline]] static RotaryTurn of(Size position, double frequency, double factor = 1) {
    const double angle = static_cast<double>(position) * frequency;
    return {factor * std::cos(angle), factor * std::sin(angle)};
  }
  /// By the sum of both angles: the addition theorem.
  DSPP_HOST_DEVICE [[gnu::always_inline]] RotaryTurn then(const RotaryTurn& next) const {
    return {cosine * next.cosine - sine * next.sine, sine * next.cosine + cosine * next.sine};
  }
};

}  // namespace dspp::ops
