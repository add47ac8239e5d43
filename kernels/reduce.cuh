// SPDX-License-Identifier: Apache-2.0
/// Sums and maxima over a warp and over a block, in an order that depends on nothing but the block's extents.
#pragma once

#include <kernels/device.cuh>

namespace dspp::gpu {

inline constexpr unsigned all_lanes = 0xffffffffu;

struct Plus {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};

/// NaN is passed over, as in the Cpu's maximum of a row: the sum of exponentials has it.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// The sum of an array in registers: a tree, as short a chain of additions as there is.
template <int N>
__device__ inline float sum_of(const float (&a)[N]) {
  float sums[N];
  for (int i = 0; i < N; ++i) sums[i] = a[i];
  for (int half = N / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

/// On every lane, f over all 32.
template <class F, class C>
__device__ inline C reduce_warp(C value, F f) {
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    value = f(value, __shfl_xor_sync(all_lanes, value, distance));
  return value;
}

/// On every thread of a block of one row of whole warps, f over all of them. For any number of calls: two barriers.
template <class F, class C>
__device__ inline C reduce_block(C value, F f, C neutral) {
  __shared__ C of_warps[warp_size];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  value = reduce_warp(value, f);
  __syncthreads();  // the last call's values have been read
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return reduce_warp(lane < blockDim.x / warp_size ? of_warps[lane] : neutral, f);
}

/// The sum over the threads that share a row: a warp if blockDim.x is 32, else the block.
__device__ inline float sum_of_row(float value) {
  if (blockDim.x == warp_size) return reduce_warp(value, Plus{});
  return reduce_block(value, Plus{}, 0.0f);
}

}  // namespace dspp::gpu
