// SPDX-License-Identifier: Apache-2.0
/// A row at any address, by accesses of 16 bytes: its packs are those of memory from the line of 128 bytes on in which
/// it begins, so that what 8 threads side by side read or write is one line. The first and the last may be its own in
/// part. For kernels with one row per block.
#pragma once

#include <kernels/element.cuh>

namespace dspp::gpu {

template <class T>
struct RowPacks {
  static constexpr int V = pack_length<T>, line_bytes = 128;
  Size n = 0;
  int before = 0;          ///< elements of the line that lie before the row
  int first = 0, end = 0;  ///< packs [first, end) are of the row alone

  __device__ RowPacks(Size length, const T* row)
      : n(length),
        before(static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % line_bytes / sizeof(T))),
        first((before + V - 1) / V),
        end(static_cast<int>((before + length) / V)) {}

  /// The column of a pack's first element.
  __device__ Size column(int pack) const { return static_cast<Size>(pack) * V - before; }
  __device__ bool inside(Size column) const { return column >= 0 && column < n; }
  /// The pack of a column, or -1 outside the row.
  __device__ int pack_of(Size column) const { return inside(column) ? static_cast<int>((column + before) / V) : -1; }
  /// Whether the packs of this row are packs of that one, too.
  __device__ bool alike(const T* row) const { return (before - RowPacks(n, row).before) % V == 0; }

  /// The pack that the row has in part at its begin (0) or its end (1), or -1: a row within one pack has one.
  __device__ int edge(int which) const {
    if (which == 0) return before % V != 0 ? first - 1 : -1;
    return end >= first && (before + n) % V != 0 ? end : -1;
  }
  /// Outside the row: `fill`.
  __device__ void load_edge(float (&to)[V], const T* row, int pack, float fill) const {
    for (int v = 0; v < V; ++v) to[v] = inside(column(pack) + v) ? to_float(row[column(pack) + v]) : fill;
  }
  __device__ void store_edge(T* row, int pack, const float (&from)[V]) const {
    for (int v = 0; v < V; ++v)
      if (inside(column(pack) + v)) row[column(pack) + v] = from_float<T>(from[v]);
  }
};

/// Where a row's pack 0 begins: at a multiple of 128 bytes.
template <class T>
__device__ inline T* line_of(T* row) {
  return row - reinterpret_cast<std::uintptr_t>(row) % RowPacks<T>::line_bytes / sizeof(T);
}

/// row[j] = 0 for j < n, by a block of `threads` threads.
template <class T>
__device__ inline void zero_row(T* row, Size n, int threads) {
  constexpr int V = RowPacks<T>::V;
  const RowPacks<T> packs(n, row);
  const float zeros[V] = {};
  const int thread = static_cast<int>(threadIdx.x);
  for (int p = thread; p < packs.end; p += threads)
    if (p >= packs.first) store_at_once(line_of(row) + static_cast<Size>(p) * V, zeros);
  if (thread < 2)
    if (const int p = packs.edge(thread); p >= 0) packs.store_edge(row, p, zeros);
}

}  // namespace dspp::gpu
