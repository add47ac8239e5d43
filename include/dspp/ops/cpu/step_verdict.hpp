// SPDX-License-Identifier: Apache-2.0
/// The verdict on a step.
#pragma once

#include <cmath>

#include <dspp/ops/clip.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

template <>
struct Kernel<kernels::JudgeStep, Cpu> {
  DSPP_HOST_DEVICE static void run(const StepLimits& limits, const double* norm, double* scalars) {
    const double correction = scalars[StepScalars::correction];
    const double loss_scale = limits.numbers != nullptr ? limits.numbers->loss_scale : limits.loss_scale;
    const double unscaled = *norm / loss_scale * correction;
    const double clipped = clip_coefficient(unscaled, limits.clip_norm);
    scalars[StepScalars::gradient_norm] = unscaled;
    scalars[StepScalars::gradient_scale] = clipped / loss_scale * correction;
    scalars[StepScalars::verdict] =
        static_cast<double>(verdict(limits, scalars[StepScalars::targets], unscaled, clipped));
  }

 private:
  DSPP_HOST_DEVICE static StepVerdict verdict(const StepLimits& limits, double targets, double norm, double clipped) {
    if (!(targets > 0)) return StepVerdict::no_targets;
    if (!(norm - norm == 0)) return StepVerdict::nonfinite;
    if (limits.largest_norm > 0 && norm > limits.largest_norm) return StepVerdict::spike;
    if (limits.largest_square > 0 && norm * clipped > std::sqrt(limits.largest_square))
      return StepVerdict::overflowing_square;
    if (norm == 0 && !limits.zero_gradients) return StepVerdict::zero_gradient;
    return StepVerdict::update;
  }
};

}  // namespace dspp
