// SPDX-License-Identifier: Apache-2.0
/// A functor on every element of one or two arrays. The functors are those of <dspp/ops/pointwise/>, which the Cpu's
/// kernels call, too; they compute in f32, and the result is rounded once.
///
/// A thread has four packs: stores of 16 bytes, all loads before the first use. Arrays that do not begin at multiples
/// of 16 bytes go element by element.
#pragma once

#include <kernels/element.cuh>

namespace dspp::gpu {

inline constexpr int pointwise_threads = 256, pointwise_packs = 4;

/// y[i] = f(x[i]). y may be x.
template <int V, class F, class U, class T>
__global__ void __launch_bounds__(pointwise_threads) pointwise_kernel(F f, Size count, U* y, const T* x) {
  const Size first = (static_cast<Size>(blockIdx.x) * pointwise_packs * pointwise_threads + threadIdx.x) * V;
  constexpr Size step = static_cast<Size>(pointwise_threads) * V;
  Pack<T, V> packs[pointwise_packs];
  DSPP_UNROLL
  for (int k = 0; k < pointwise_packs; ++k)
    if (first + k * step + V <= count) packs[k] = load_pack<V>(x + first + k * step);
  DSPP_UNROLL
  for (int k = 0; k < pointwise_packs; ++k) {
    const Size begin = first + k * step;
    if (begin + V <= count) {
      float a[V];
      unpack(a, packs[k]);
      for (int v = 0; v < V; ++v) a[v] = f(a[v]);
      store(y + begin, a);
    } else {
      for (Size i = begin; i < count; ++i) y[i] = from_float<U>(f(to_float(x[i])));
    }
  }
}

/// z[i] = f(x[i], y[i]). z may be x or y.
template <int V, class F, class U, class T, class S>
__global__ void __launch_bounds__(pointwise_threads)
    pointwise_pair_kernel(F f, Size count, U* z, const T* x, const S* y) {
  const Size first = (static_cast<Size>(blockIdx.x) * pointwise_packs * pointwise_threads + threadIdx.x) * V;
  constexpr Size step = static_cast<Size>(pointwise_threads) * V;
  Pack<T, V> packs_x[pointwise_packs];
  Pack<S, V> packs_y[pointwise_packs];
  DSPP_UNROLL
  for (int k = 0; k < pointwise_packs; ++k)
    if (first + k * step + V <= count) {
      packs_x[k] = load_pack<V>(x + first + k * step);
      packs_y[k] = load_pack<V>(y + first + k * step);
    }
  DSPP_UNROLL
  for (int k = 0; k < pointwise_packs; ++k) {
    const Size begin = first + k * step;
    if (begin + V <= count) {
      float a[V], b[V];
      unpack(a, packs_x[k]);
      unpack(b, packs_y[k]);
      for (int v = 0; v < V; ++v) a[v] = f(a[v], b[v]);
      store(z + begin, a);
    } else {
      for (Size i = begin; i < count; ++i) z[i] = from_float<U>(f(to_float(x[i]), to_float(y[i])));
    }
  }
}

/// Bytes     sizeof(T) + sizeof(U) an element
template <class F, class U, class T>
void pointwise(const Work& work, cudaStream_t stream, F f, Size count, U* y, const T* x) {
  constexpr int longest = pack_length<U>;  // a store of 16 bytes: two halves of one would cost as much as two
  constexpr Size each = static_cast<Size>(pointwise_threads) * pointwise_packs;
  if (is_aligned(x) && is_aligned(y))
    launch(work, pointwise_kernel<longest, F, U, T>, blocks_for(count, each * longest), {pointwise_threads}, stream, f,
           count, y, x);
  else
    launch(work, pointwise_kernel<1, F, U, T>, blocks_for(count, each), {pointwise_threads}, stream, f, count, y, x);
}

/// Bytes     sizeof(T) + sizeof(S) + sizeof(U) an element
template <class F, class U, class T, class S>
void pointwise_pair(const Work& work, cudaStream_t stream, F f, Size count, U* z, const T* x, const S* y) {
  constexpr int longest = pack_length<U>;
  constexpr Size each = static_cast<Size>(pointwise_threads) * pointwise_packs;
  if (is_aligned(x) && is_aligned(y) && is_aligned(z))
    launch(work, pointwise_pair_kernel<longest, F, U, T, S>, blocks_for(count, each * longest), {pointwise_threads},
           stream, f, count, z, x, y);
  else
    launch(work, pointwise_pair_kernel<1, F, U, T, S>, blocks_for(count, each), {pointwise_threads}, stream, f, count,
           z, x, y);
}

}  // namespace dspp::gpu
