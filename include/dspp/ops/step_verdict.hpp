// SPDX-License-Identifier: Apache-2.0
/// Whether a step updates, decided in a device's memory: the update reads the verdict there, and the host need not wait
/// for it.
#pragma once

#include <dspp/ops/cpu/step_verdict.hpp>

namespace dspp::ops {

/// Writes norm, scale and verdict of a step whose gradient, in the units of the loss scale, has the norm `*norm`,
/// beside the StepScalars of its targets.
template <class D>
constexpr void judge_step(Memory<D>& memory, const StepLimits& limits, const double* norm, double* scalars) {
  launch<kernels::JudgeStep, D>(memory, limits, norm, scalars);
}

}  // namespace dspp::ops
