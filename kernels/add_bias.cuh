// SPDX-License-Identifier: Apache-2.0
/// A row vector added to every row.
///
///   y[i, j] = x[i, j] + bias[j]      x, y [rows, n]; bias [n]
///
/// Bytes     2 sizeof(T) an element
#pragma once

#include <kernels/element.cuh>
#include <kernels/row_tiles.cuh>

namespace dspp::gpu {

template <int V, class T>
__global__ void __launch_bounds__(256)
    add_bias_kernel(Size rows, Size n, Size strips, T* y, const T* x, const T* bias) {
  const Tile at = tile_of_thread(strips);
  const Size j = at.pack * V;
  if (at.row >= rows || j >= n) return;
  float a[V], b[V];
  load(a, x + at.row * n + j);
  load(b, bias + j);
  for (int v = 0; v < V; ++v) a[v] += b[v];
  store_at_once(y + at.row * n + j, a);
}

/// y may be x.
template <class T>
void add_bias(cudaStream_t stream, Size rows, Size n, T* y, const T* x, const T* bias) {
  const bool aligned = rows_are_aligned<T>(n, y, x, bias);
  const RowTiles tiles = row_tiles(rows, aligned ? n / pack_length<T> : n);
  launch(Work{"add_bias", rows, n}, aligned ? add_bias_kernel<pack_length<T>, T> : add_bias_kernel<1, T>, tiles.blocks,
         tiles.block, stream, rows, n, tiles.strips, y, x, bias);
}

}  // namespace dspp::gpu
