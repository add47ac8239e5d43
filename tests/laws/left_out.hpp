// SPDX-License-Identifier: Apache-2.0
/// What the GPU in software does without a barrier, or without its waits.
#pragma once

#include <kernels/device.cuh>
#include <laws/difference.hpp>

namespace dspp::laws {

/// The largest of the errors that run() returns under so many orders of warps and blocks, with __syncthreads number
/// `barrier` left out; infinity where it ends with a sentence.
template <class Run>
double worst_without(int barrier, Run run, unsigned orders = 20) {
  software_gpu::leave_out_barrier(barrier);
  Worst worst;
  try {
    for (unsigned seed = 0; seed < orders; ++seed) {
      software_gpu::seed(seed);
      worst.add(run());
    }
  } catch (const Error&) {
    worst.add(infinitely_far);
  }
  software_gpu::leave_out_barrier(-1);
  return worst.value();
}

}  // namespace dspp::laws
