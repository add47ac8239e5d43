// SPDX-License-Identifier: Apache-2.0
/// A row at any address, by accesses of 16 bytes: the packs are those of memory from the line of 128 bytes on in which
/// the row begins. So packs may lie before the row, wholly or in part, and the last may end after it; and what 8 threads
/// side by side read or write is one line. For kernels with one row per block.
#pragma once

#include <kernels/element.cuh>

namespace dspp::gpu {

/// Columns [column, column + V) of pack p, some of which may be outside [0, n).
template <class T>
struct RowPacks {
  static constexpr int V = pack_length<T>, line_bytes = 128;
  Size n = 0;
  int before = 0;  ///< elements of the first line that lie before the row

  __device__ RowPacks(Size length, const T* row)
      : n(length), before(static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % line_bytes / sizeof(T))) {}

  __device__ Size count() const { return (n + before + V - 1) / V; }
  __device__ Size column(Size pack) const { return pack * V - before; }
  __device__ bool inside(Size column) const { return column >= 0 && column < n; }
  __device__ bool whole(Size column) const { return column >= 0 && column + V <= n; }
  /// Whether the packs of this row are packs of that one, too.
  __device__ bool alike(const T* row) const { return (before - RowPacks(n, row).before) % V == 0; }

  /// Outside the row: `fill`.
  __device__ void load_part(float (&to)[V], const T* row, Size column, float fill) const {
    if (whole(column)) {
      load(to, row + column);
    } else {
      for (int v = 0; v < V; ++v) to[v] = inside(column + v) ? to_float(row[column + v]) : fill;
    }
  }
  /// Into a row that lies alike, modulo 16 bytes.
  __device__ void store_part(T* row, Size column, const float (&from)[V]) const {
    if (whole(column))
      store(row + column, from);
    else
      store_each(row, column, from);
  }
  __device__ void store_each(T* row, Size column, const float (&from)[V]) const {
    for (int v = 0; v < V; ++v)
      if (inside(column + v)) row[column + v] = from_float<T>(from[v]);
  }
};

}  // namespace dspp::gpu
