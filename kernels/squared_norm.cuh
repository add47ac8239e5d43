// SPDX-License-Identifier: Apache-2.0
/// The sum of squares of an array [count], and with it whether all elements are finite, in one pass.
///
///   total = sum over i of x[i]^2
///
/// In f64, where squares of f32 neither overflow nor underflow: `total` is finite exactly if every element is. In an
/// order that depends on count alone: a thread sums every so-many-th pack, a block its threads, a last block the
/// blocks.
///
/// Bytes     sizeof(T) an element
#pragma once

#include <kernels/element.cuh>
#include <kernels/reduce.cuh>

namespace dspp::gpu {

inline constexpr int norm_threads = 512;
inline constexpr Size most_norm_pieces = 132 * 4;

/// Doubles of the scratch.
constexpr Size squared_norm_scratch(Size count) {
  const Size needed = blocks_for(count, norm_threads * 32);
  return needed < most_norm_pieces ? (needed > 0 ? needed : 1) : most_norm_pieces;
}

template <int V, class T>
__global__ void __launch_bounds__(norm_threads) squared_norm_kernel(Size count, const T* x, double* pieces) {
  const Size step = static_cast<Size>(gridDim.x) * norm_threads * V;
  constexpr int ahead = 4;  // loads before the first use
  double sum = 0;
  for (Size first = (static_cast<Size>(blockIdx.x) * norm_threads + threadIdx.x) * V; first < count;
       first += ahead * step) {
    Pack<T, V> packs[ahead];
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (first + k * step + V <= count) packs[k] = load_pack<V>(x + first + k * step);
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (first + k * step + V <= count) {
        float a[V];
        unpack(a, packs[k]);
        for (int v = 0; v < V; ++v) sum += static_cast<double>(a[v]) * static_cast<double>(a[v]);
      } else {
        for (Size i = first + k * step; i < count; ++i)
          sum += static_cast<double>(to_float(x[i])) * static_cast<double>(to_float(x[i]));
      }
  }
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) pieces[blockIdx.x] = sum;
}

/// *total (+)= sum of pieces, in order of threads.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    sum_norm_pieces_kernel(Size count, const double* pieces, double* total, bool accumulate) {
  double sum = 0;
  for (Size i = threadIdx.x; i < count; i += Threads) sum += pieces[i];
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) *total = accumulate ? *total + sum : sum;
}

/// With `accumulate` for several arrays one after another.
template <class T>
void squared_norm(cudaStream_t stream, Size count, const T* x, double* scratch, double* total,
                  bool accumulate = false) {
  const Work work{"squared_norm", 1, count};
  const Size pieces = squared_norm_scratch(count);
  launch(work, is_aligned(x) ? squared_norm_kernel<pack_length<T>, T> : squared_norm_kernel<1, T>, pieces,
         {norm_threads}, stream, count, x, scratch);
  launch(work, sum_norm_pieces_kernel<norm_threads>, Size{1}, {norm_threads}, stream, pieces, scratch, total,
         accumulate);
}

}  // namespace dspp::gpu
