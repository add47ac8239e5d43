// SPDX-License-Identifier: Apache-2.0
/// The sum of all rows: the gradient of a bias.
///
///   into[j] (+)= sum over i of x[i, j]      x [rows, n]; into [n]
///
/// In f32, in an order that depends on the extents alone, rounded once. A block has a strip of columns and every
/// so-many-th row; then the blocks' sums are added.
///
/// Bytes     sizeof(T) an element
#pragma once

#include <kernels/pieces.cuh>

namespace dspp::gpu {

template <int V, class T>
__global__ void __launch_bounds__(column_block.x* column_block.y)
    column_sum_kernel(Size rows, Size n, Size strips, Size pieces, const T* x, float* parts) {
  constexpr int ahead = 4;  // loads before the first use
  __shared__ float sums[V][column_block.y][warp_size];
  const Size strip = blockIdx.x % strips, piece = blockIdx.x / strips;
  const Size first = (strip * warp_size + threadIdx.x) * V, step = pieces * column_block.y;
  float sum[V] = {};
  if (first < n)
    for (Size row = piece * column_block.y + threadIdx.y; row < rows; row += ahead * step) {
      Pack<T, V> packs[ahead];
      DSPP_UNROLL
      for (int k = 0; k < ahead; ++k)
        if (row + k * step < rows) packs[k] = load_pack<V>(x + (row + k * step) * n + first);
      DSPP_UNROLL
      for (int k = 0; k < ahead; ++k)
        if (row + k * step < rows) {
          float a[V];
          unpack(a, packs[k]);
          for (int v = 0; v < V; ++v) sum[v] += a[v];
        }
    }
  for (int v = 0; v < V; ++v) sums[v][threadIdx.y][threadIdx.x] = sum[v];
  __syncthreads();
  const int v = static_cast<int>(threadIdx.y);
  if (v >= V || first >= n) return;
  float total = 0;
  for (int i = 0; i < column_block.y; ++i) total += sums[v][i][threadIdx.x];
  parts[piece * n + first + v] = total;
}

template <class T, class G>
void column_sum(cudaStream_t stream, Size rows, Size n, const T* x, float* scratch, G* into, Write write) {
  const Work work{"column_sum", rows, n};
  const Size pieces = column_pieces<T>(rows, n);
  const bool aligned = rows_are_aligned<T>(n, x);
  const Size strips = blocks_for(n, warp_size * (aligned ? pack_length<T> : 1));
  launch(work, aligned ? column_sum_kernel<pack_length<T>, T> : column_sum_kernel<1, T>, strips * pieces, column_block,
         stream, rows, n, strips, pieces, x, scratch);
  sum_pieces(work, stream, pieces, n, n, scratch, into, write);
}

}  // namespace dspp::gpu
