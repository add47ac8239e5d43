// SPDX-License-Identifier: Apache-2.0
/// The verdict on a step.
#pragma once

#include <cmath>

#include <dspp/ops/clip.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

template <>
struct Kernel<kernels::JudgeStep, Cpu> {
  static void run(const StepLimits& limits, const double* norm, double* scalars) {
    const double unscaled = *norm / limits.loss_scale * limits.correction;
    const double clipped = clip_coefficient(unscaled, limits.clip_norm);
    scalars[StepScalars::gradient_norm] = unscaled;
    scalars[StepScalars::gradient_scale] = clipped / limits.loss_scale * limits.correction;
    scalars[StepScalars::verdict] = static_cast<double>(verdict(limits, unscaled, clipped));
  }

 private:
  static StepVerdict verdict(const StepLimits& limits, double norm, double clipped) {
    if (!(norm - norm == 0)) return StepVerdict::nonfinite;
    if (limits.largest_norm > 0 && norm > limits.largest_norm) return StepVerdict::spike;
    if (limits.largest_square > 0 && norm * clipped > std::sqrt(limits.largest_square))
      return StepVerdict::overflowing_square;
    if (norm == 0 && !limits.zero_gradients) return StepVerdict::zero_gradient;
    return StepVerdict::update;
  }
};

}  // namespace dspp
