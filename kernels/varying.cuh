// SPDX-License-Identifier: Apache-2.0
/// What changes from step to step among the arguments of a launch.
#pragma once

#include <kernels/device.cuh>

namespace dspp::gpu {

/// A value, or its place in the device's memory where launches are repeated (cuda/graphs.hpp); the value is then the
/// same in every step.
template <class R>
struct Varying {
  R value;
  const R* place = nullptr;

  __device__ R get() const { return place != nullptr ? *place : value; }
};

}  // namespace dspp::gpu
