// SPDX-License-Identifier: Apache-2.0
/// The transpose of a matrix.
///
///   y[j, i] = x[i, j]      x [rows, n]; y [n, rows]
///
/// A block has a tile of 64 x 64, which it reads and writes along rows, and turns in shared memory.
///
/// Bytes     2 sizeof(T) an element
#pragma once

#include <kernels/element.cuh>

namespace dspp::gpu {

inline constexpr int tile_width = 64, tile_threads = 256;

/// X: elements of one access to x; Y: to y.
template <int X, int Y, class T>
__global__ void __launch_bounds__(tile_threads) transpose_kernel(Size rows, Size n, Size strips, T* y, const T* x) {
  // Padded by one word, so that neither rows nor columns meet in one bank.
  __shared__ T tile[tile_width][tile_width + 4 / sizeof(T)];
  const Size top = blockIdx.x / strips * tile_width, left = blockIdx.x % strips * tile_width;
  for (int i = static_cast<int>(threadIdx.x) * X; i < tile_width * tile_width; i += tile_threads * X) {
    const int row = i / tile_width, column = i % tile_width;
    if (top + row < rows && left + column < n) {
      const Pack<T, X> pack = load_pack<X>(x + (top + row) * n + left + column);
      for (int v = 0; v < X; ++v) tile[row][column + v] = element_of(pack, v);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x) * Y; i < tile_width * tile_width; i += tile_threads * Y) {
    const int column = i / tile_width, row = i % tile_width;  // of x
    if (top + row < rows && left + column < n) {
      Pack<T, Y> pack = {};
      for (int v = 0; v < Y; ++v) set_element(pack, v, tile[row + v][column]);
      store_pack(y + (left + column) * rows + top + row, pack);
    }
  }
}

template <class T>
void transpose(cudaStream_t stream, Size rows, Size n, T* y, const T* x) {
  constexpr int V = pack_length<T>;
  const bool x_aligned = rows_are_aligned<T>(n, x), y_aligned = rows_are_aligned<T>(rows, y);
  const Size strips = blocks_for(n, tile_width);
  launch(Work{"transpose", rows, n},
         x_aligned ? (y_aligned ? transpose_kernel<V, V, T> : transpose_kernel<V, 1, T>)
                   : (y_aligned ? transpose_kernel<1, V, T> : transpose_kernel<1, 1, T>),
         strips * blocks_for(rows, tile_width), {tile_threads}, stream, rows, n, strips, y, x);
}

}  // namespace dspp::gpu
