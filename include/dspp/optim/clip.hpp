// SPDX-License-Identifier: Apache-2.0
/// Clipping of gradients by their global norm.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// What all gradients are multiplied with, so that their norm is at most max_norm: max_norm / (norm + 1e-6) where that
/// is below 1, else exactly 1. `norm` is that of all parameters of all ranks, loss scale taken out; max_norm 0 is no
/// clipping. A norm that is not finite gives 1: such a step is to be skipped, not clipped.
///
/// Source   DeepSpeed, runtime/zero/stage_1_and_2.py: unscale_and_clip_grads
constexpr double clip_coefficient(double norm, double max_norm) {
  if (!(max_norm > 0) || !(norm - norm == 0)) return 1;
  const double excess = (norm + 1e-6) / max_norm;
  return excess > 1 ? 1 / excess : 1;
}

}  // namespace dspp
