// SPDX-License-Identifier: Apache-2.0
/// A function of every index: a thread each. For what moves little, or has no place of its own yet.
#pragma once

#include <kernels/element.cuh>

namespace dspp::gpu {

inline constexpr int each_threads = 256;

template <class Body>
__global__ void __launch_bounds__(each_threads) each_kernel(Size count, Body body) {
  const Size i = static_cast<Size>(blockIdx.x) * each_threads + threadIdx.x;
  if (i < count) body(i);
}

/// body(i) for i < count.
template <class Body>
void launch_each(const Work& work, cudaStream_t stream, Size count, const Body& body) {
  launch(work, each_kernel<Body>, blocks_for(count, each_threads), {each_threads}, stream, count, body);
}

/// body() once.
template <class Body>
__global__ void __launch_bounds__(warp_size) once_kernel(Body body) {
  if (threadIdx.x == 0) body();
}

template <class Body>
void launch_once(const Work& work, cudaStream_t stream, const Body& body) {
  launch(work, once_kernel<Body>, Size{1}, {warp_size}, stream, body);
}

}  // namespace dspp::gpu
