// SPDX-License-Identifier: Apache-2.0
/// Rows of a table by number, and the sum of gradients per row.
///
///   y[i, :] = table[ids[i] - first_row, :], or zeros where the table has no such row
///   into[r, :] (+)= sum over i with ids[i] - first_row = r of dy[i, :]         y [count, n]; table, into [rows, n]
///
/// The backward pass needs no atomics: positions are sorted by row, and windows of 32 sorted positions are summed by a
/// block each. A row whose positions lie in one window is written there. One that goes on into the next has a part per
/// window, which the window where it begins adds up afterwards, in order. So the bits depend on the ids alone.
///
/// Bytes     forward 2 sizeof(T) an element of y; backward sizeof(T) an element of dy, and the rows that are written
#pragma once

#include <dspp/ops/write.hpp>
#include <kernels/element.cuh>
#include <kernels/row_tiles.cuh>
#include <kernels/sort.cuh>

namespace dspp::gpu {

template <int V, class T>
__global__ void __launch_bounds__(256) embedding_kernel(Size count, Size rows, Size n, Size strips, T* y,
                                                        const T* table, const std::int32_t* ids, Size first_row) {
  const Tile at = tile_of_thread(strips);
  const Size j = at.pack * V;
  if (at.row >= count || j >= n) return;
  const Size row = ids[at.row] - first_row;
  Pack<T, V> pack = {};
  if (row >= 0 && row < rows) pack = load_pack<V>(table + row * n + j);
  store_pack_at_once(y + at.row * n + j, pack);
}

template <class T>
void embedding(cudaStream_t stream, Size count, Size rows, Size n, T* y, const T* table, const std::int32_t* ids,
               Size first_row) {
  const bool aligned = rows_are_aligned<T>(n, y, table);
  const RowTiles tiles = row_tiles(count, aligned ? n / pack_length<T> : n);
  launch(Work{"embedding", count, n}, aligned ? embedding_kernel<pack_length<T>, T> : embedding_kernel<1, T>,
         tiles.blocks, tiles.block, stream, count, rows, n, tiles.strips, y, table, ids, first_row);
}

// ---- backward -------------------------------------------------------------------------------------------------------

inline constexpr int window_threads = 128;

/// Key: the row, or `rows` where the table has none.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    embedding_keys_kernel(Size count, Size rows, const std::int32_t* ids, Size first_row, std::uint32_t* keys,
                          std::int32_t* positions) {
  const Size i = static_cast<Size>(blockIdx.x) * Threads + threadIdx.x;
  if (i >= count) return;
  const Size row = ids[i] - first_row;
  keys[i] = static_cast<std::uint32_t>(row >= 0 && row < rows ? row : rows);
  positions[i] = static_cast<std::int32_t>(i);
}

template <int V, class G>
__device__ inline void write_row(G* to, const float (&sum)[V], Write write) {
  float total[V] = {};
  if (write == Write::accumulate) load(total, to);
  for (int v = 0; v < V; ++v) total[v] += sum[v];
  store_at_once(to, total);
}

/// Sums of the runs of equal keys in one window. `parts` [windows, 2, n]: the sum of a run that began in an earlier
/// window, and that of one that begins here and goes on.
template <int V, class T, class G>
__global__ void __launch_bounds__(window_threads)
    embedding_windows_kernel(Size count, Size rows, Size n, Size strips, const T* dy, const std::uint32_t* keys,
                             const std::int32_t* positions, float* parts, G* into, Write write) {
  const Size strip = blockIdx.x % strips, number = blockIdx.x / strips, begin = number * embedding_window;
  const Size j = (strip * window_threads + threadIdx.x) * V;
  if (j >= n) return;
  const int length = static_cast<int>(count - begin < embedding_window ? count - begin : embedding_window);
  const std::uint32_t before = begin > 0 ? keys[begin - 1] : ~0u,
                      after = begin + length < count ? keys[begin + length] : ~0u;
  float* const part = parts + number * 2 * n + j;
  std::uint32_t key = keys[begin];
  bool began_before = key == before;
  float sum[V] = {};
  constexpr int ahead = 8;  // loads before the first use
  for (int first = 0; first < length; first += ahead) {
    Pack<T, V> packs[ahead];
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (first + k < length) packs[k] = load_pack<V>(dy + positions[begin + first + k] * n + j);
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (first + k < length) {
        if (const std::uint32_t next = keys[begin + first + k]; next != key) {
          if (began_before)
            store_at_once(part, sum);
          else
            write_row(into + static_cast<Size>(key) * n + j, sum, write);  // key < rows: a larger one follows
          began_before = false;
          key = next;
          for (int v = 0; v < V; ++v) sum[v] = 0;
        }
        float a[V];
        unpack(a, packs[k]);
        for (int v = 0; v < V; ++v) sum[v] += a[v];
      }
  }
  if (began_before)
    store_at_once(part, sum);
  else if (key == after)
    store_at_once(part + n, sum);
  else if (key < static_cast<std::uint32_t>(rows))
    write_row(into + static_cast<Size>(key) * n + j, sum, write);
}

/// The rows whose positions lie in several windows.
template <int V, class G>
__global__ void __launch_bounds__(window_threads)
    embedding_parts_kernel(Size count, Size rows, Size n, Size strips, const std::uint32_t* keys, const float* parts,
                           G* into, Write write) {
  const Size strip = blockIdx.x % strips, number = blockIdx.x / strips, begin = number * embedding_window,
             end = begin + embedding_window;
  const Size j = (strip * window_threads + threadIdx.x) * V;
  if (j >= n || end >= count) return;
  const std::uint32_t key = keys[end - 1];
  const bool begins_here = keys[begin] != key || begin == 0 || keys[begin - 1] != key;
  if (key != keys[end] || !begins_here || key >= static_cast<std::uint32_t>(rows)) return;
  Size last = end, beyond = count;  // the run ends between them: the first position with a larger key is `beyond`
  while (beyond - last > 1) {
    const Size middle = last + (beyond - last) / 2;
    (keys[middle] == key ? last : beyond) = middle;
  }
  float sum[V];
  load(sum, parts + (number * 2 + 1) * n + j);
  constexpr int ahead = 16;  // loads before the first use: a frequent word has hundreds of parts
  for (Size w = number + 1; w <= last / embedding_window; w += ahead) {
    float a[ahead][V];
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (w + k <= last / embedding_window) load(a[k], parts + (w + k) * 2 * n + j);
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (w + k <= last / embedding_window)
        for (int v = 0; v < V; ++v) sum[v] += a[k][v];
  }
  write_row(into + static_cast<Size>(key) * n + j, sum, write);
}

/// What the backward pass needs, all of it on the device: keys, positions, both sorted, the parts, and a workspace.
struct EmbeddingScratch {
  std::uint32_t *keys = nullptr, *sorted_keys = nullptr;           ///< [count]
  std::int32_t *positions = nullptr, *sorted_positions = nullptr;  ///< [count]
  float* parts = nullptr;                                          ///< embedding_parts(count, n)
  void* workspace = nullptr;
  Size workspace_bytes = 0;  ///< embedding_workspace(count, rows)
};

inline Size embedding_workspace(Size count, Size rows) {
  return sort_workspace(count, key_bits(rows));
}

template <class T, class G>
void embedding_backward(cudaStream_t stream, Size count, Size rows, Size n, G* into, Write write, const T* dy,
                        const std::int32_t* ids, Size first_row, const EmbeddingScratch& scratch) {
  const Work work{"embedding_backward", count, n};
  require_32_bits({"embedding_backward", count, rows});  // positions and keys
  if (write == Write::overwrite) {
    note_launch("zero", into, rows, n);
    check_issued(work, stream, cudaMemsetAsync(into, 0, static_cast<std::size_t>(rows * n) * sizeof(G), stream));
  }
  if (count == 0 || n == 0) return;
  launch(work, embedding_keys_kernel<256>, blocks_for(count, 256), {256}, stream, count, rows, ids, first_row,
         scratch.keys, scratch.positions);
  sort_pairs(stream, count, key_bits(rows), scratch.keys, scratch.sorted_keys, scratch.positions,
             scratch.sorted_positions, scratch.workspace, scratch.workspace_bytes);
  const bool aligned = rows_are_aligned<T>(n, dy, into) && is_aligned(scratch.parts);
  const Size strips = blocks_for(n, window_threads * (aligned ? pack_length<T> : 1)),
             windows = blocks_for(count, embedding_window);
  launch(work, aligned ? embedding_windows_kernel<pack_length<T>, T, G> : embedding_windows_kernel<1, T, G>,
         windows * strips, {window_threads}, stream, count, rows, n, strips, dy, scratch.sorted_keys,
         scratch.sorted_positions, scratch.parts, into, write);
  const Size part_strips = blocks_for(n, window_threads * (aligned ? 4 : 1));
  launch(work, aligned ? embedding_parts_kernel<4, G> : embedding_parts_kernel<1, G>, windows * part_strips,
         {window_threads}, stream, count, rows, n, part_strips, scratch.sorted_keys, scratch.parts, into, write);
}

}  // namespace dspp::gpu
