// SPDX-License-Identifier: Apache-2.0
/// Clipping of gradients by their global norm.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// The factor of all gradients that makes their norm at most max_norm: max_norm / (norm + 1e-6) where that is below 1,
/// else exactly 1. `norm` is the unscaled norm over all parameters of all ranks; max_norm 0 turns clipping off. A norm
/// that is not finite gives 1: such a step is skipped, not clipped.
///
/// Source   DeepSpeed, runtime/zero/stage_1_and_2.py: unscale_and_clip_grads
DSPP_HOST_DEVICE constexpr double clip_coefficient(double norm, double max_norm) {
  if (!(max_norm > 0) || !(norm - norm == 0)) return 1;
  const double excess = (norm + 1e-6) / max_norm;
  return excess > 1 ? 1 / excess : 1;
}

}  // namespace dspp
