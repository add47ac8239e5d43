// SPDX-License-Identifier: Apache-2.0
/// silu(a) b of rows that hold a and b side by side, forward and backward.
///
///   y[i, j] = silu(x[i, j]) x[i, n + j]      silu(a) = a / (1 + exp(-a))      x, dx [rows, 2 n]; y, dy [rows, n]
///
/// Bytes     forward 3 sizeof(T) an element of y, backward 5 sizeof(T)
/// Source    Shazeer 2020, GLU Variants Improve Transformer
#pragma once

#include <dspp/ops/pointwise/swiglu.hpp>
#include <kernels/element.cuh>
#include <kernels/row_tiles.cuh>

namespace dspp::gpu {

template <int V, class T>
__global__ void __launch_bounds__(256) swiglu_kernel(Size rows, Size n, Size strips, T* y, const T* x) {
  const Tile at = tile_of_thread(strips);
  const Size j = at.pack * V;
  if (at.row >= rows || j >= n) return;
  float a[V], b[V];
  load(a, x + at.row * 2 * n + j);
  load(b, x + at.row * 2 * n + n + j);
  for (int v = 0; v < V; ++v) a[v] = pointwise::Swiglu{}(a[v], b[v]);
  store_at_once(y + at.row * n + j, a);
}

template <int V, class T>
__global__ void __launch_bounds__(256)
    swiglu_backward_kernel(Size rows, Size n, Size strips, T* dx, const T* x, const T* dy) {
  const Tile at = tile_of_thread(strips);
  const Size j = at.pack * V;
  if (at.row >= rows || j >= n) return;
  float a[V], b[V], upstream[V];
  load(a, x + at.row * 2 * n + j);
  load(b, x + at.row * 2 * n + n + j);
  load(upstream, dy + at.row * n + j);
  for (int v = 0; v < V; ++v) {
    float da, db;
    pointwise::Swiglu{}.derivatives(a[v], b[v], upstream[v], da, db);
    a[v] = da;
    b[v] = db;
  }
  store_at_once(dx + at.row * 2 * n + j, a);
  store_at_once(dx + at.row * 2 * n + n + j, b);
}

template <class T>
void swiglu(cudaStream_t stream, Size rows, Size n, T* y, const T* x) {
  const Work work{"swiglu", rows, n};
  const bool aligned = rows_are_aligned<T>(n, y, x);
  const RowTiles tiles = row_tiles(rows, aligned ? n / pack_length<T> : n);
  launch(work, aligned ? swiglu_kernel<pack_length<T>, T> : swiglu_kernel<1, T>, tiles.blocks, tiles.block, stream,
         rows, n, tiles.strips, y, x);
}

/// dx may be x.
template <class T>
void swiglu_backward(cudaStream_t stream, Size rows, Size n, T* dx, const T* x, const T* dy) {
  const Work work{"swiglu_backward", rows, n};
  const bool aligned = rows_are_aligned<T>(n, dx, x, dy);
  const RowTiles tiles = row_tiles(rows, aligned ? n / pack_length<T> : n);
  launch(work, aligned ? swiglu_backward_kernel<pack_length<T>, T> : swiglu_backward_kernel<1, T>, tiles.blocks,
         tiles.block, stream, rows, n, tiles.strips, dx, x, dy);
}

}  // namespace dspp::gpu
