// SPDX-License-Identifier: Apache-2.0
/// Sums over rows without atomics: blocks sum pieces of the rows, then this kernel sums the pieces, in order.
#pragma once

#include <dspp/ops/write.hpp>
#include <kernels/element.cuh>

namespace dspp::gpu {

/// first[j] (+)= sum over pieces of parts[piece, j], second[j] (+)= that of parts[piece, n + j]; parts [pieces, width].
/// A block has 32 columns, each summed by blockDim.y threads, whose sums are added in order.
template <class G>
__global__ void __launch_bounds__(1024) sum_pieces_kernel(Size pieces, Size n, Size width, const float* parts, G* first,
                                                          Write write_first, G* second, Write write_second) {
  __shared__ float sums[warp_size][warp_size];
  const Size column = static_cast<Size>(blockIdx.x) * warp_size + threadIdx.x;
  float sum = 0;
  if (column < width)
    for (Size piece = threadIdx.y; piece < pieces; piece += blockDim.y) sum += parts[piece * width + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width) return;
  G* const to = column < n ? first + column : second + (column - n);
  const Write write = column < n ? write_first : write_second;
  sum = write == Write::accumulate ? to_float(*to) : 0;
  for (unsigned i = 0; i < blockDim.y; ++i) sum += sums[i][threadIdx.x];
  *to = from_float<G>(sum);
}

/// Without pieces the sums are 0. `second` may be null where width is n.
template <class G>
void sum_pieces(const Work& work, cudaStream_t stream, Size pieces, Size n, Size width, const float* parts, G* first,
                Write write_first, G* second = nullptr, Write write_second = Write::overwrite) {
  const int threads = pieces < 8 ? 1 : pieces < 128 ? static_cast<int>(pieces / 4) : 32;  // of a column
  launch(work, sum_pieces_kernel<G>, blocks_for(width, warp_size), {warp_size, threads}, stream, pieces, n, width,
         parts, first, write_first, second, write_second);
}

}  // namespace dspp::gpu
