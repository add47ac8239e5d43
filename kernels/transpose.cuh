// SPDX-License-Identifier: Apache-2.0
/// The transpose of a matrix.
///
///   y[j, i] = x[i, j]      x [rows, n]; y [n, rows]
///
/// A thread reads a square of packs and turns it in its registers: 8 x 8 elements of 16 bits, 4 x 4 of 32. Rows that
/// are not aligned go element by element through tiles of 64 x 64 in shared memory.
///
/// Bytes     2 sizeof(T) an element
#pragma once

#include <kernels/element.cuh>

namespace dspp::gpu {

inline constexpr int tile_width = 64, tile_threads = 256;

/// 16 x 16 squares. Pack q of a row of the turned tile lies at q xor the row's square, else the threads of a warp would
/// meet in the same banks.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    transpose_squares_kernel(Size rows, Size n, Size strips, T* y, const T* x) {
  constexpr int V = pack_length<T>, squares = 16;
  using P = Pack<T, V>;
  __shared__ P tile[squares * V][squares];
  const int upper = static_cast<int>(threadIdx.x) / squares, lower = static_cast<int>(threadIdx.x) % squares;
  const Size top = blockIdx.x / strips * squares * V, left = blockIdx.x % strips * squares * V;
  if (top + upper * V < rows && left + lower * V < n) {
    P from[V], to[V] = {};
    DSPP_UNROLL
    for (int i = 0; i < V; ++i) from[i] = load_pack<V>(x + (top + upper * V + i) * n + left + lower * V);
    DSPP_UNROLL
    for (int j = 0; j < V; ++j) {
      DSPP_UNROLL
      for (int i = 0; i < V; ++i) set_element(to[j], i, element_of(from[i], j));
    }
    DSPP_UNROLL
    for (int j = 0; j < V; ++j) tile[lower * V + j][upper ^ lower] = to[j];
  }
  __syncthreads();
  DSPP_UNROLL
  for (int k = 0; k < V; ++k) {
    const int column = k * squares + upper;  // of x
    if (left + column < n && top + lower * V < rows)
      store_pack(y + (left + column) * rows + top + lower * V, tile[column][lower ^ (column / V)]);
  }
}

template <class T>
__global__ void __launch_bounds__(tile_threads) transpose_kernel(Size rows, Size n, Size strips, T* y, const T* x) {
  __shared__ T
      tile[tile_width][tile_width + 4 / sizeof(T)];  // padded by a word: neither rows nor columns meet in a bank
  const Size top = blockIdx.x / strips * tile_width, left = blockIdx.x % strips * tile_width;
  for (int i = static_cast<int>(threadIdx.x); i < tile_width * tile_width; i += tile_threads) {
    const int row = i / tile_width, column = i % tile_width;
    if (top + row < rows && left + column < n) tile[row][column] = x[(top + row) * n + left + column];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < tile_width * tile_width; i += tile_threads) {
    const int column = i / tile_width, row = i % tile_width;  // of x
    if (top + row < rows && left + column < n) y[(left + column) * rows + top + row] = tile[row][column];
  }
}

template <class T>
void transpose(cudaStream_t stream, Size rows, Size n, T* y, const T* x) {
  const bool squares = rows_are_aligned<T>(n, x) && rows_are_aligned<T>(rows, y);
  const Size width = squares ? 16 * pack_length<T> : tile_width, strips = blocks_for(n, width);
  launch(Work{"transpose", rows, n}, squares ? transpose_squares_kernel<T> : transpose_kernel<T>,
         strips * blocks_for(rows, width), {tile_threads}, stream, rows, n, strips, y, x);
}

}  // namespace dspp::gpu
