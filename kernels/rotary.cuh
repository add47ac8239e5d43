// SPDX-License-Identifier: Apache-2.0
/// Rotations of pairs of features by their positions, forward and (with sign -1) backward.
///
///   y[i, h, j]        = x[i, h, j] c - x[i, h, j + half] s
///   y[i, h, j + half] = x[i, h, j + half] c + x[i, h, j] s      c = table[i mod sequence, j]
///                                                              s = sign table[i mod sequence, half + j]
///
/// Rows [batch x sequence] of `columns` elements, of which the first `rotated` are heads of head_dim = 2 half. The
/// others (values, say) are copied. table [sequence, head_dim]: cosines, then sines.
///
/// Bytes     2 sizeof(T) an element; the table stays in the cache
/// Source    Su et al. 2021, RoFormer, section 3.4
#pragma once

#include <dspp/ops/kernels.hpp>
#include <kernels/element.cuh>
#include <kernels/row_tiles.cuh>

namespace dspp::gpu {

/// A thread has a pack of first halves and the pack of their second halves, of `Heads` heads that turn alike, or a pack
/// that is copied.
template <int V, int Heads, class T>
__global__ void __launch_bounds__(256)
    rotary_kernel(kernels::RotaryExtents at, Size strips, T* y, const T* x, const float* table, float sign) {
  const Tile tile = tile_of_thread(strips);
  if (tile.row >= at.rows) return;
  const int half = static_cast<int>(at.head_dim / 2), packs = half / V;  // of a head's half
  const int turns = static_cast<int>(at.rotated) / 2 / V / Heads;
  const int pack = static_cast<int>(tile.pack);
  const T* const from = x + tile.row * at.columns;
  T* const to = y + tile.row * at.columns;
  if (pack >= turns) {
    const Size column = at.rotated + static_cast<Size>(pack - turns) * V;
    if (column < at.columns && from != to) store_pack_at_once(to + column, load_pack<V>(from + column));
    return;
  }
  const int head = pack / packs * Heads, j = pack % packs * V, first = head * 2 * half + j;
  const float* const turn = table + tile.row % at.sequence * at.head_dim + j;
  Pack<T, V> packs_a[Heads], packs_b[Heads];
  DSPP_UNROLL
  for (int h = 0; h < Heads; ++h) {
    packs_a[h] = load_pack<V>(from + first + h * 2 * half);
    packs_b[h] = load_pack<V>(from + first + h * 2 * half + half);
  }
  float c[V], s[V];
  load(c, turn);
  load(s, turn + half);
  DSPP_UNROLL
  for (int h = 0; h < Heads; ++h) {
    float a[V], b[V];
    unpack(a, packs_a[h]);
    unpack(b, packs_b[h]);
    for (int v = 0; v < V; ++v) {
      const float turned = sign * s[v], before = a[v];
      a[v] = before * c[v] - b[v] * turned;
      b[v] = b[v] * c[v] + before * turned;
    }
    store_at_once(to + first + h * 2 * half, a);
    store_at_once(to + first + h * 2 * half + half, b);
  }
}

/// y may be x. `sign` -1 rotates back.
template <class T>
void rotary(cudaStream_t stream, const kernels::RotaryExtents& at, T* y, const T* x, const float* table, double sign) {
  constexpr int V = pack_length<T>;
  const bool aligned =
      rows_are_aligned<T>(at.columns, y, x) && at.head_dim / 2 % V == 0 && at.rotated % V == 0 && is_aligned(table);
  const bool pairs = aligned && at.rotated / at.head_dim % 2 == 0;
  const Size length = aligned ? V : 1;
  const Size packs = at.rotated / 2 / length / (pairs ? 2 : 1) + (at.columns - at.rotated) / length;
  const RowTiles tiles = row_tiles(at.rows, packs);
  const Work work{"rotary", at.rows, at.columns};
  require_32_bits(work);
  launch(work,
         pairs     ? rotary_kernel<V, 2, T>
         : aligned ? rotary_kernel<V, 1, T>
                   : rotary_kernel<1, 1, T>,
         tiles.blocks, tiles.block, stream, at, tiles.strips, y, x, table, static_cast<float>(sign));
}

}  // namespace dspp::gpu
