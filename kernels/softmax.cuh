// SPDX-License-Identifier: Apache-2.0
/// Softmax of rows, forward and backward.
///
///   y[i, j] = exp(x[i, j] - m[i]) / sum over k of exp(x[i, k] - m[i])      m the row's maximum; x, y [rows, n]
///   dx[i, j] = y[i, j] (dy[i, j] - sum over k of dy[i, k] y[i, k])
///
/// Bytes     forward 2 sizeof(T) an element, backward 3 sizeof(T)
/// Source    Milakov and Gimelshein 2018, Online normalizer calculation for softmax
#pragma once

#include <kernels/row_registers.cuh>
#include <kernels/softmax_row.cuh>

namespace dspp::gpu {

/// f over the threads that share a row: a warp if blockDim.x is 32, else the block.
template <class F>
__device__ inline float reduce_row(float value, F f, float neutral) {
  return blockDim.x == warp_size ? reduce_warp(value, f) : reduce_block(value, f, neutral);
}

/// The longest row in registers: a block of 1024 threads for aligned rows, of 512 for others, which need more
/// registers.
template <class T>
constexpr Size longest_softmax_row(bool aligned) {
  return (aligned ? 2 : 1) * longest_row<T>;
}

template <int V, class T>
__global__ void __launch_bounds__(V > 1 ? 1024 : 512) softmax_kernel(Size rows, int n, T* y, const T* x) {
  const Size row = static_cast<Size>(blockIdx.x) * blockDim.y + threadIdx.y, begin = row * n;
  if (row >= rows) return;  // a whole warp
  constexpr int packs = row_values<T> / V;
  const int step = static_cast<int>(blockDim.x) * V, first = static_cast<int>(threadIdx.x) * V;
  Pack<T, V> packed[packs];
  float a[V], largest = minus_infinity, sum = 0;
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) packed[k] = load_pack<V>(x + begin + first + k * step);
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      unpack(a, packed[k]);
      for (int v = 0; v < V; ++v) largest = Larger{}(largest, a[v]);
    }
  largest = reduce_row(largest, Larger{}, minus_infinity);
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      unpack(a, packed[k]);
      for (int v = 0; v < V; ++v) sum += row_exp<T>(a[v] - largest);
    }
  const float factor = 1 / reduce_row(sum, Plus{}, 0.0f);
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {  // the exponentials once more: cheaper than the registers to keep them
      unpack(a, packed[k]);
      for (int v = 0; v < V; ++v) a[v] = row_exp<T>(a[v] - largest) * factor;
      store(y + begin + first + k * step, a);
    }
}

template <int V, class T>
__global__ void __launch_bounds__(V > 1 ? 1024 : 512)
    softmax_backward_kernel(Size rows, int n, T* dx, const T* dy, const T* y) {
  const Size row = static_cast<Size>(blockIdx.x) * blockDim.y + threadIdx.y, begin = row * n;
  if (row >= rows) return;  // a whole warp
  constexpr int packs = row_values<T> / V;
  const int step = static_cast<int>(blockDim.x) * V, first = static_cast<int>(threadIdx.x) * V;
  Pack<T, V> packed_y[packs], packed_dy[packs];
  float a[V], b[V], projection = 0;
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      packed_y[k] = load_pack<V>(y + begin + first + k * step);
      packed_dy[k] = load_pack<V>(dy + begin + first + k * step);
    }
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      unpack(a, packed_y[k]);
      unpack(b, packed_dy[k]);
      for (int v = 0; v < V; ++v) projection += a[v] * b[v];
    }
  projection = reduce_row(projection, Plus{}, 0.0f);
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      unpack(a, packed_y[k]);
      unpack(b, packed_dy[k]);
      for (int v = 0; v < V; ++v) a[v] *= b[v] - projection;
      store(dx + begin + first + k * step, a);
    }
}

/// Aligned rows of up to longest_softmax_row(true), a block each: dy in registers and y in shared memory, where each
/// thread has what it copies for itself, so that two blocks have room on a multiprocessor.
template <class T>
__global__ void __launch_bounds__(1024, 2) wide_softmax_backward_kernel(int n, T* dx, const T* dy, const T* y) {
  constexpr int V = pack_length<T>, packs = row_values<T> / V;
  using P = Pack<T, V>;
  const Size begin = static_cast<Size>(blockIdx.x) * n;
  const int threads = static_cast<int>(blockDim.x), step = threads * V, first = static_cast<int>(threadIdx.x) * V;
  P* const kept = static_cast<P*>(shared_memory()) + threadIdx.x;
  P packed_dy[packs];
  float a[V], b[V], projection = 0;
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) copy_pack_async(&kept[k * threads], y + begin + first + k * step);
  __pipeline_commit();
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) packed_dy[k] = load_pack<V>(dy + begin + first + k * step);
  __pipeline_wait_prior(0);
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      unpack(a, kept[k * threads]);
      unpack(b, packed_dy[k]);
      for (int v = 0; v < V; ++v) projection += a[v] * b[v];
    }
  projection = reduce_block(projection, Plus{}, 0.0f);
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      unpack(a, kept[k * threads]);
      unpack(b, packed_dy[k]);
      for (int v = 0; v < V; ++v) a[v] *= b[v] - projection;
      store_at_once(dx + begin + first + k * step, a);
    }
}

/// Rows of any length, a block each.
template <class T>
__global__ void __launch_bounds__(long_row_threads) long_softmax_kernel(Size n, T* y, const T* x) {
  constexpr int V = RowPacks<T>::V;
  const T* const row = x + static_cast<Size>(blockIdx.x) * n;
  T* const to = y + static_cast<Size>(blockIdx.x) * n;
  const RowPacks<T> packs(n, row);
  const bool alike = packs.alike(to);
  const int thread = static_cast<int>(threadIdx.x), edge = thread < 2 ? packs.edge(thread) : -1;
  float a[V];
  MaxAndSum<T> own;
  for (int p = thread; p < packs.end; p += long_row_threads)
    if (p >= packs.first) {
      load(a, line_of(row) + static_cast<Size>(p) * V);
      own.add(a);
    }
  if (edge >= 0) {
    packs.load_edge(a, row, edge, minus_infinity);
    own.add(a);
  }
  const MaxAndSum<T> total = own.of_block();
  const float factor = 1 / total.sum;
  const ExpFrom<T> exp(total.largest);
  for (int p = thread; p < packs.end; p += long_row_threads)
    if (p >= packs.first) {
      load(a, line_of(row) + static_cast<Size>(p) * V);
      for (int v = 0; v < V; ++v) a[v] = exp(a[v]) * factor;
      if (alike)
        store_at_once(to + packs.column(p), a);
      else
        packs.store_edge(to, p, a);
    }
  if (edge >= 0) {
    packs.load_edge(a, row, edge, minus_infinity);
    for (int v = 0; v < V; ++v) a[v] = exp(a[v]) * factor;
    packs.store_edge(to, edge, a);
  }
}

template <int V, class T>
__global__ void __launch_bounds__(long_row_threads)
    long_softmax_backward_kernel(Size n, T* dx, const T* dy, const T* y) {
  const Size begin = static_cast<Size>(blockIdx.x) * n;
  float a[V], b[V], projection = 0;
  for (Size column = static_cast<Size>(threadIdx.x) * V; column < n; column += long_row_threads * V) {
    load(a, y + begin + column);
    load(b, dy + begin + column);
    for (int v = 0; v < V; ++v) projection += a[v] * b[v];
  }
  projection = reduce_block(projection, Plus{}, 0.0f);
  for (Size column = static_cast<Size>(threadIdx.x) * V; column < n; column += long_row_threads * V) {
    load(a, y + begin + column);
    load(b, dy + begin + column);
    for (int v = 0; v < V; ++v) a[v] *= b[v] - projection;
    store(dx + begin + column, a);
  }
}

/// y may be x.
template <class T>
void softmax(cudaStream_t stream, Size rows, Size n, T* y, const T* x) {
  const Work work{"softmax", rows, n};
  const bool aligned = rows_are_aligned<T>(n, y, x);
  if (n > longest_softmax_row<T>(aligned))
    return launch(work, long_softmax_kernel<T>, rows, {long_row_threads}, stream, n, y, x);
  const Block block = row_block<T>(n);
  launch(work, aligned ? softmax_kernel<pack_length<T>, T> : softmax_kernel<1, T>, blocks_for(rows, block.y), block,
         stream, rows, n, y, x);
}

/// dx may be dy or y.
template <class T>
void softmax_backward(cudaStream_t stream, Size rows, Size n, T* dx, const T* dy, const T* y) {
  const Work work{"softmax_backward", rows, n};
  const bool aligned = rows_are_aligned<T>(n, dx, dy, y);
  const Block block = row_block<T>(n);
  if (aligned && n > longest_row<T> && n <= longest_softmax_row<T>(aligned))
    return launch(work, wide_softmax_backward_kernel<T>, rows,
                  {block.x, 1, Size{row_values<T>} * Size{sizeof(T)} * block.x}, stream, n, dx, dy, y);
  if (n > longest_row<T>)
    return launch(work, aligned ? long_softmax_backward_kernel<pack_length<T>, T> : long_softmax_backward_kernel<1, T>,
                  rows, {long_row_threads}, stream, n, dx, dy, y);
  launch(work, aligned ? softmax_backward_kernel<pack_length<T>, T> : softmax_backward_kernel<1, T>,
         blocks_for(rows, block.y), block, stream, rows, n, dx, dy, y);
}

}  // namespace dspp::gpu
