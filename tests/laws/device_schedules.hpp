// SPDX-License-Identifier: Apache-2.0
/// Tests under many random orders of the GPU in software.
#pragma once

#include <kernels/device.cuh>

namespace dspp::laws {

/// f() under so many seeds as DSPP_GPU_SCHEDULES in the environment says, or 20, from the first one on. On a GPU, once.
template <class F>
void under_schedules(F f) {
#if DSPP_HAS_NVCC()
  f();
#else
  const unsigned schedules = software_gpu::number_of_environment("DSPP_GPU_SCHEDULES", 20);
  require(schedules > 0, "dspp: DSPP_GPU_SCHEDULES needs at least 1, but is 0. Leave it out for 20.");
  for (unsigned i = 0; i < schedules; ++i) {
    software_gpu::seed(software_gpu::first_seed() + i);
    f();
  }
#endif
}

}  // namespace dspp::laws
