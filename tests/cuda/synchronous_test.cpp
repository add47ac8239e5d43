// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/each.cuh>

#include <laws/device_array.hpp>

using namespace dspp;

#if !DSPP_HAS_NVCC()
namespace {

__global__ void diverging_kernel(int at) {
  if (static_cast<int>(threadIdx.x) == at) __syncthreads();
}

}  // namespace

TEST_CASE("where launches are waited for, an error of a kernel is thrown by its launch") {
  const laws::TestStream stream;
  CHECK_FALSE(gpu::waits_for_launches());
  gpu::waits_for_launches() = true;
  CHECK_THROWS_AS(gpu::launch({"diverging"}, diverging_kernel, 1, {64}, stream, 0), Error);
  CHECK_NOTHROW(gpu::launch({"not diverging"}, diverging_kernel, 1, {64}, stream, -1));
  gpu::waits_for_launches() = false;
}
#endif
