// SPDX-License-Identifier: Apache-2.0
/// What kernels/device.cuh includes where there is no nvcc: the words of CUDA C++ that kernels use, for a host
/// compiler.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <software_gpu/block.hpp>
#include <software_gpu/graphs.hpp>
#include <software_gpu/runtime.hpp>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __shared__ static  // one block runs at a time

inline void __syncthreads() {
  dspp::software_gpu::wait_at(dspp::software_gpu::Barrier::block);
}
inline void __syncwarp() {
  dspp::software_gpu::wait_at(dspp::software_gpu::Barrier::warp);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned with) {
  return dspp::software_gpu::shuffle(mask, value, dspp::software_gpu::lane_of_thread() ^ with);
}
template <class T>
T __shfl_sync(unsigned mask, T value, unsigned from) {
  return dspp::software_gpu::shuffle(mask, value, from);
}
/// Whether it holds on any lane, on all of them.
inline int __any_sync(unsigned mask, int holds) {
  for (unsigned with = 1; with < dspp::software_gpu::warp_size; with *= 2) holds |= __shfl_xor_sync(mask, holds, with);
  return holds;
}

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0) {
  dspp::software_gpu::copy_later(to, from, bytes, zeros);
}
inline void __pipeline_commit() {
  dspp::software_gpu::end_group_of_copies();
}
inline void __pipeline_wait_prior(std::size_t later) {
  dspp::software_gpu::wait_for_copies(later);
}

template <class T>
T atomicAdd(T* place, T value) {
  const T before = *place;
  *place = before + value;
  return before;
}

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
