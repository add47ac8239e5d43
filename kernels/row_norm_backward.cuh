// SPDX-License-Identifier: Apache-2.0
/// The backward pass of layer_norm.cuh and rms_norm.cuh; its formulas are in row_norm.cuh.
///
/// A thread keeps 16 elements of a row, and the gradients of their gamma and beta. Those are sums without atomics: a
/// block adds up every so-many-th row in registers, then a second kernel adds the blocks (pieces.cuh). How many there
/// are depends on the extents alone, so the bits do not depend on the GPU. Rows of more than 8192 elements are read
/// again from the cache, and once more for the sums of columns.
#pragma once

#include <kernels/pieces.cuh>
#include <kernels/reduce.cuh>
#include <kernels/row_registers.cuh>

namespace dspp::gpu {

inline constexpr int column_threads = 128;
inline constexpr Size most_staged_bytes = 96 * 1024;  // of compute capability 8.6 on a block may have only 99 KiB

struct RowSums {
  float gradient, projection;
};

/// Both sums (of rows that are not centred, the second) over the threads with this threadIdx.y; `turn` counts the
/// calls. One barrier: the next call writes elsewhere.
template <bool Both>
__device__ inline RowSums sums_of_row(RowSums own, int turn) {
  own = {Both ? reduce_warp(own.gradient, Plus{}) : 0, reduce_warp(own.projection, Plus{})};
  if (blockDim.x == warp_size) return own;
  __shared__ RowSums of_warps[2][warp_size];
  const unsigned warps = blockDim.x / warp_size, first = threadIdx.y * warps;
  if (threadIdx.x % warp_size == 0) of_warps[turn % 2][first + threadIdx.x / warp_size] = own;
  __syncthreads();
  RowSums sums{0, 0};
  for (unsigned warp = first; warp < first + warps; ++warp) {
    sums.gradient += of_warps[turn % 2][warp].gradient;
    sums.projection += of_warps[turn % 2][warp].projection;
  }
  return sums;
}

/// What a block of norm_backward_kernel shares: two rows of so many arrays for each of its rows, then sums over its
/// rows.
template <class T>
constexpr Size norm_backward_shared_bytes(const Block& block, int arrays, int length) {
  const Size threads = block.x * block.y, sums = block.y > 1 ? 2 * Size{backward_values} * block.x * 4 : 0;
  const Size stages = length == 1 ? 0 : 2 * arrays * Size{backward_values} * threads * Size{sizeof(T)};
  return stages > sums ? stages : sums;
}

/// dx + earlier (null: dx), and this block's part of dgamma and dbeta in `pieces`, [gridDim.x, 1 or 2, n]. While a row
/// is computed, the thread's packs of the next are on their way to shared memory, those of `earlier` if it is staged;
/// no other thread reads them. Elements that are not aligned come one by one.
///
/// Bytes     x, dy (and earlier) read, dx written: 3 or 4 sizeof(T) an element
template <bool Centred, int V, class T>
__global__ void __launch_bounds__(512)
    norm_backward_kernel(Size rows, int n, T* dx, const T* dy, const T* x, const T* earlier, bool is_earlier_staged,
                         const T* gamma, const float* mean, const float* rstd, float* pieces) {
  constexpr int packs = backward_values / V;
  const float inverse_n = 1.0f / static_cast<float>(n);
  using P = Pack<T, V>;
  const int step = static_cast<int>(blockDim.x) * V, first = static_cast<int>(threadIdx.x) * V;
  const unsigned threads = blockDim.x * blockDim.y, own = threadIdx.y * blockDim.x + threadIdx.x;
  const Size row_step = static_cast<Size>(gridDim.x) * blockDim.y;
  P* const stages = static_cast<P*>(shared_memory());  // [x, dy and earlier, 2 rows, packs, threads]
  const auto slot = [&](int array, int stage, int k) -> P& {
    return stages[((array * 2 + stage) * packs + k) * threads + own];
  };
  float next_mean = 0, next_rstd = 0;
  const auto fetch = [&](Size row, int stage) {
    if (row < rows) {
      next_mean = Centred ? mean[row] : 0;
      next_rstd = rstd[row];
    }
    if constexpr (V > 1) {
      for (int k = 0; k < packs; ++k) {
        const int column = first + k * step;
        if (row >= rows || column >= n) continue;
        copy_pack_async(&slot(0, stage, k), x + row * n + column);
        copy_pack_async(&slot(1, stage, k), dy + row * n + column);
        if (is_earlier_staged) copy_pack_async(&slot(2, stage, k), earlier + row * n + column);
      }
      __pipeline_commit();
    }
  };
  fetch(static_cast<Size>(blockIdx.x) * blockDim.y + threadIdx.y, 0);
  P gammas[packs];
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) gammas[k] = load_pack<V>(gamma + first + k * step);
  float dgamma[packs][V] = {}, dbeta[packs][V] = {};
  int turn = 0;
  for (Size top = static_cast<Size>(blockIdx.x) * blockDim.y; top < rows; top += row_step, ++turn) {
    const Size row = top + threadIdx.y, begin = row * n;
    const int end = row < rows ? n : 0;  // all threads come to the barrier
    const float m = next_mean, r = next_rstd;
    fetch(row + row_step, (turn + 1) % 2);
    if constexpr (V > 1) __pipeline_wait_prior(1);
    float z[packs][V], weighted[packs][V];  // x, then (x - mean) rstd; dy, then dy gamma
    RowSums sums{0, 0};
    for (int k = 0; k < packs; ++k)
      if (const int column = first + k * step; column < end) {
        unpack(z[k], V > 1 ? slot(0, turn % 2, k) : load_pack<V>(x + begin + column));
        unpack(weighted[k], V > 1 ? slot(1, turn % 2, k) : load_pack<V>(dy + begin + column));
      }
    for (int k = 0; k < packs; ++k)
      if (first + k * step < end) {
        float g[V], products[V];
        unpack(g, gammas[k]);
        for (int v = 0; v < V; ++v) {
          z[k][v] = (z[k][v] - m) * r;
          dgamma[k][v] += weighted[k][v] * z[k][v];
          dbeta[k][v] += weighted[k][v];
          weighted[k][v] *= g[v];
          products[v] = weighted[k][v] * z[k][v];
        }
        if constexpr (Centred) sums.gradient += sum_of(weighted[k]);
        sums.projection += sum_of(products);
      }
    sums = sums_of_row<Centred>(sums, turn);
    const float average = Centred ? sums.gradient * inverse_n : 0, slope = sums.projection * inverse_n;
    for (int k = 0; k < packs; ++k)
      if (const int column = first + k * step; column < end) {
        for (int v = 0; v < V; ++v) z[k][v] = r * (weighted[k][v] - average - z[k][v] * slope);
        if (earlier != nullptr) {
          float more[V];
          unpack(more, is_earlier_staged ? slot(2, turn % 2, k) : load_pack<V>(earlier + begin + column));
          for (int v = 0; v < V; ++v) z[k][v] += more[v];
        }
        store(dx + begin + column, z[k]);
      }
  }
  // The block's rows add up one after another; the last has the sums.
  if (blockDim.y > 1) {
    float* const sums = static_cast<float*>(shared_memory());  // [2, backward_values, blockDim.x]
    const auto place = [&](int array, int i) -> float& {
      return sums[(array * backward_values + i) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)];
    };
    for (unsigned y = 0; y < blockDim.y; ++y) {
      __syncthreads();
      if (threadIdx.y == y)
        for (int i = 0; i < backward_values; ++i) {
          float &of_gamma = dgamma[i / V][i % V], &of_beta = dbeta[i / V][i % V];
          if (y > 0) of_gamma += place(0, i);
          if (Centred && y > 0) of_beta += place(1, i);
          if (y + 1 < blockDim.y) place(0, i) = of_gamma;
          if (Centred && y + 1 < blockDim.y) place(1, i) = of_beta;
        }
    }
    if (threadIdx.y + 1 < blockDim.y) return;
  }
  float* const piece = pieces + static_cast<Size>(blockIdx.x) * (Centred ? 2 : 1) * n;
  for (int k = 0; k < packs; ++k)
    if (const int column = first + k * step; column < n) {
      store(piece + column, dgamma[k]);
      if constexpr (Centred) store(piece + n + column, dbeta[k]);
    }
}

/// dx + earlier (null: dx) of rows of any length, a block each.
template <bool Centred, int V, class T>
__global__ void __launch_bounds__(long_row_threads)
    long_norm_backward_kernel(Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma,
                              const float* mean, const float* rstd) {
  const Size begin = static_cast<Size>(blockIdx.x) * n, step = static_cast<Size>(blockDim.x) * V;
  const Size first = static_cast<Size>(threadIdx.x) * V;
  const float inverse_n = 1.0f / static_cast<float>(n);
  const float m = Centred ? mean[blockIdx.x] : 0, r = rstd[blockIdx.x];
  float sum = 0, projection = 0, a[V], b[V], g[V];
  for (Size column = first; column < n; column += step) {
    load(a, x + begin + column);
    load(b, dy + begin + column);
    load(g, gamma + column);
    for (int v = 0; v < V; ++v) {
      sum += b[v] * g[v];
      projection += b[v] * g[v] * (a[v] - m) * r;
    }
  }
  const float average = Centred ? sum_of_row(sum) * inverse_n : 0;
  const float slope = sum_of_row(projection) * inverse_n;
  for (Size column = first; column < n; column += step) {
    load(a, x + begin + column);
    load(b, dy + begin + column);
    load(g, gamma + column);
    for (int v = 0; v < V; ++v) a[v] = r * (b[v] * g[v] - average - (a[v] - m) * r * slope);
    if (earlier != nullptr) {
      load(b, earlier + begin + column);
      for (int v = 0; v < V; ++v) a[v] += b[v];
    }
    store(dx + begin + column, a);
  }
}

/// The parts of dgamma and dbeta of long rows: block (piece, strip of columns), a column each thread, rows in order.
template <bool Centred, class T>
__global__ void __launch_bounds__(column_threads)
    long_norm_columns_kernel(Size rows, Size n, Size strips, Size piece_rows, const T* dy, const T* x,
                             const float* mean, const float* rstd, float* pieces) {
  const Size piece = blockIdx.x / strips, column = blockIdx.x % strips * column_threads + threadIdx.x;
  const Size end = (piece + 1) * piece_rows < rows ? (piece + 1) * piece_rows : rows;
  if (column >= n) return;
  float dgamma = 0, dbeta = 0;
  for (Size row = piece * piece_rows; row < end; ++row) {
    const float b = to_float(dy[row * n + column]), m = Centred ? mean[row] : 0;
    dgamma += b * (to_float(x[row * n + column]) - m) * rstd[row];
    dbeta += b;
  }
  float* const sums = pieces + piece * (Centred ? 2 : 1) * n;
  sums[column] = dgamma;
  if constexpr (Centred) sums[n + column] = dbeta;
}

template <bool Centred, int V, class T>
void launch_norm_backward(const Work& work, cudaStream_t stream, T* dx, const T* dy, const T* x, const T* earlier,
                          const T* gamma, const float* mean, const float* rstd, float* scratch) {
  const Size rows = work.rows, n = work.columns, pieces = norm_pieces(rows, n);
  if (n <= longest_backward_row) {
    Block block = backward_block(n > 0 ? n : 1);
    block.shared_bytes = norm_backward_shared_bytes<T>(block, 3, V);
    const bool is_earlier_staged = earlier != nullptr && V > 1 && block.shared_bytes <= most_staged_bytes;
    if (!is_earlier_staged) block.shared_bytes = norm_backward_shared_bytes<T>(block, 2, V);
    return launch(work, norm_backward_kernel<Centred, V, T>, pieces, block, stream, rows, n, dx, dy, x, earlier,
                  is_earlier_staged, gamma, mean, rstd, scratch);
  }
  const Size strips = blocks_for(n, column_threads);
  launch(work, long_norm_columns_kernel<Centred, T>, pieces * strips, {column_threads}, stream, rows, n, strips,
         blocks_for(rows, pieces > 0 ? pieces : 1), dy, x, mean, rstd, scratch);  // first: dx may be dy
  launch(work, long_norm_backward_kernel<Centred, V, T>, rows, {long_row_threads}, stream, n, dx, dy, x, earlier, gamma,
         mean, rstd);
}

}  // namespace dspp::gpu
