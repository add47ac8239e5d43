// SPDX-License-Identifier: Apache-2.0
/// What layer_norm.cuh and rms_norm.cuh share. Rows [rows, n], centred or not:
///
///   y  = (x - mean) rstd gamma + beta            rstd = 1 / sqrt(variance + epsilon)
///   dx = rstd (g - average(g) - z average(g z))  g = dy gamma, z = (x - mean) rstd, averages over the row
///                                                written as dx + earlier: what x has from other operations
///   dgamma = sum over rows of dy z, dbeta = sum over rows of dy
///
/// Without centring mean, average(g) and beta are absent. This file is the forward pass; row_norm_backward.cuh the
/// other.
///
/// A row lies in the registers of the threads that share it, 64 bytes each: a warp up to 2 KiB, a block up to 32 KiB.
/// So x is read once, and the variance is that of the differences to the mean. Longer rows are read again from the
/// cache.
#pragma once

#include <kernels/reduce.cuh>
#include <kernels/row_registers.cuh>

namespace dspp::gpu {

/// Bytes     x (and residual) read, y (and sum) written: 2 or 4 sizeof(T) an element
template <bool Centred, int V, class T>
__global__ void __launch_bounds__(512)
    norm_kernel(Size rows, int n, const T* x, const T* residual, const T* gamma, const T* beta, float epsilon, T* sum,
                T* y, float* mean, float* rstd) {
  const Size row = static_cast<Size>(blockIdx.x) * blockDim.y + threadIdx.y, begin = row * n;
  if (row >= rows) return;  // a whole warp
  constexpr int packs = row_values<T> / V;
  const float inverse_n = 1.0f / static_cast<float>(n);
  const int step = static_cast<int>(blockDim.x) * V, first = static_cast<int>(threadIdx.x) * V;
  using P = Pack<T, V>;
  P packed[packs], others[packs], gammas[packs], betas[packs];  // as in memory: for 16-bit elements half the registers
  float a[V];
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) packed[k] = load_pack<V>(x + begin + first + k * step);
  if (residual != nullptr) {
    for (int k = 0; k < packs; ++k)
      if (first + k * step < n) others[k] = load_pack<V>(residual + begin + first + k * step);
    for (int k = 0; k < packs; ++k)
      if (const int column = first + k * step; column < n) {
        float r[V];
        unpack(a, packed[k]);
        unpack(r, others[k]);
        for (int v = 0; v < V; ++v) a[v] += r[v];
        packed[k] = pack_floats<T>(a);
        store_pack(sum + begin + column, packed[k]);
      }
  }
  for (int k = 0; k < packs; ++k)  // they come while the sums are formed
    if (const int column = first + k * step; column < n) {
      gammas[k] = load_pack<V>(gamma + column);
      if constexpr (Centred) betas[k] = load_pack<V>(beta + column);
    }
  float m = 0;
  if constexpr (Centred) {
    for (int k = 0; k < packs; ++k)
      if (first + k * step < n) {
        unpack(a, packed[k]);
        m += sum_of(a);
      }
    m = sum_of_row(m) * inverse_n;
  }
  float squares = 0;
  for (int k = 0; k < packs; ++k)
    if (first + k * step < n) {
      unpack(a, packed[k]);
      for (int v = 0; v < V; ++v) a[v] = (a[v] - m) * (a[v] - m);
      squares += sum_of(a);
    }
  const float r = rsqrtf(sum_of_row(squares) * inverse_n + epsilon);
  for (int k = 0; k < packs; ++k)
    if (const int column = first + k * step; column < n) {
      float g[V], b[V] = {};
      unpack(a, packed[k]);
      unpack(g, gammas[k]);
      if constexpr (Centred) unpack(b, betas[k]);
      for (int v = 0; v < V; ++v) a[v] = (a[v] - m) * r * g[v] + b[v];
      store(y + begin + column, a);
    }
  if (threadIdx.x == 0) {
    if constexpr (Centred) mean[row] = m;
    rstd[row] = r;
  }
}

/// The same for rows of any length, a block each. x is read three times, of which two should come from the cache.
template <bool Centred, int V, class T>
__global__ void __launch_bounds__(long_row_threads)
    long_norm_kernel(Size n, const T* x, const T* residual, const T* gamma, const T* beta, float epsilon, T* sum, T* y,
                     float* mean, float* rstd) {
  const Size begin = static_cast<Size>(blockIdx.x) * n, step = static_cast<Size>(blockDim.x) * V;
  const Size first = static_cast<Size>(threadIdx.x) * V;
  const float inverse_n = 1.0f / static_cast<float>(n);
  if (residual != nullptr)
    for (Size column = first; column < n; column += step) {
      float a[V], r[V];
      load(a, x + begin + column);
      load(r, residual + begin + column);
      for (int v = 0; v < V; ++v) a[v] += r[v];
      store(sum + begin + column, a);
    }
  const T* const normalized = residual != nullptr ? sum : x;  // each thread reads what it wrote
  float m = 0, squares = 0;
  if constexpr (Centred) {
    for (Size column = first; column < n; column += step) {
      float a[V];
      load(a, normalized + begin + column);
      for (int v = 0; v < V; ++v) m += a[v];
    }
    m = sum_of_row(m) * inverse_n;
  }
  for (Size column = first; column < n; column += step) {
    float a[V];
    load(a, normalized + begin + column);
    for (int v = 0; v < V; ++v) squares += (a[v] - m) * (a[v] - m);
  }
  const float r = rsqrtf(sum_of_row(squares) * inverse_n + epsilon);
  for (Size column = first; column < n; column += step) {
    float a[V], g[V], b[V] = {};
    load(a, normalized + begin + column);
    load(g, gamma + column);
    if constexpr (Centred) load(b, beta + column);
    for (int v = 0; v < V; ++v) a[v] = (a[v] - m) * r * g[v] + b[v];
    store(y + begin + column, a);
  }
  if (threadIdx.x == 0) {
    if constexpr (Centred) mean[blockIdx.x] = m;
    rstd[blockIdx.x] = r;
  }
}

template <bool Centred, int V, class T>
void launch_norm(const Work& work, cudaStream_t stream, const T* x, const T* residual, const T* gamma, const T* beta,
                 double epsilon, T* sum, T* y, float* mean, float* rstd) {
  const Size rows = work.rows, n = work.columns;
  const auto eps = static_cast<float>(epsilon);
  if (n > longest_row<T>)
    return launch(work, long_norm_kernel<Centred, V, T>, rows, {long_row_threads}, stream, n, x, residual, gamma, beta,
                  eps, sum, y, mean, rstd);
  const Block block = row_block<T>(n);
  launch(work, norm_kernel<Centred, V, T>, blocks_for(rows, block.y), block, stream, rows, n, x, residual, gamma, beta,
         eps, sum, y, mean, rstd);
}

}  // namespace dspp::gpu
