// SPDX-License-Identifier: Apache-2.0
/// Dropout by Philox: the Cpu's values bit for bit, with no state, and the same call for the backward pass.
///
///   y[e] = bits(e) >= threshold ? factor x[e] : 0      bits(e) of (seed, step, sample, site, e), e the place of the
///   element in its whole sample, of which x may be a window [samples, extents...]
///
/// Bytes     2 sizeof(T) an element; ten rounds of Philox for every four elements
/// Source    Salmon, Moraes, Dror, Shaw 2011, Parallel random numbers: as easy as 1, 2, 3, section 3.3
#pragma once

#include <dspp/ops/kernels.hpp>
#include <kernels/element.cuh>
#include <kernels/row_tiles.cuh>

namespace dspp::gpu {

/// The bits of elements [first, first + V): those of a call of Philox for every four, and of one more where the first
/// is not a multiple of four.
template <int V>
__device__ inline void draw_bits(const PhiloxStream& stream, Size first, std::uint32_t (&bits)[V]) {
  constexpr int calls = V / 4 + 1;
  const auto key0 = static_cast<std::uint32_t>(stream.key.seed);
  const auto key1 = static_cast<std::uint32_t>(stream.key.seed >> 32);
  const int shift = static_cast<int>(first % 4);
  std::uint32_t words[4 * calls] = {};
  DSPP_UNROLL
  for (int c = 0; c < calls; ++c)
    if (4 * c < V || shift > 0) {
      const PhiloxBlock block = philox4x32_10(dspp::detail::philox_counter(stream, first / 4 + c), key0, key1);
      DSPP_UNROLL
      for (int w = 0; w < 4; ++w) words[4 * c + w] = block.words[w];
    }
  DSPP_UNROLL
  for (int v = 0; v < V; ++v) bits[v] = words[v];
  if (shift == 0) return;
  DSPP_UNROLL
  for (int v = 0; v < V; ++v)  // words[v + shift], with constant indices
    bits[v] = shift == 1 ? words[v + 1] : shift == 2 ? words[v + 2] : words[v + 3];
}

inline constexpr int dropout_packs = 4;  // of a thread

/// The bits of a thread's packs, `step` apart, of which the first begins at a multiple of 4. Their rounds share the
/// additions to the keys, a third of one call's instructions.
template <int V>
__device__ inline void draw_bits(const PhiloxStream& stream, Size first, Size step,
                                 std::uint32_t (&bits)[dropout_packs][V]) {
  constexpr int calls = V / 4;
  std::uint32_t x[4][dropout_packs * calls];
  DSPP_UNROLL
  for (int c = 0; c < dropout_packs * calls; ++c) {
    const PhiloxBlock counter = dspp::detail::philox_counter(stream, (first + c / calls * step) / 4 + c % calls);
    for (int w = 0; w < 4; ++w) x[w][c] = counter.words[w];
  }
  dspp::detail::philox_rounds(x, static_cast<std::uint32_t>(stream.key.seed),
                              static_cast<std::uint32_t>(stream.key.seed >> 32));
  DSPP_UNROLL
  for (int c = 0; c < dropout_packs * calls; ++c)
    for (int w = 0; w < 4; ++w) bits[c / calls][c % calls * 4 + w] = x[w][c];
}

/// Rows are runs of n elements that follow one another in the whole sample.
template <int V, class T>
__global__ void __launch_bounds__(256, 3)
    dropout_kernel(kernels::DropoutArguments at, Size rows, Size n, Size strips, T* y, const T* x) {
  const Tile tile = tile_of_thread(strips, dropout_packs);
  if (tile.row >= rows) return;
  const Size first = tile.pack * V, step = static_cast<Size>(blockDim.x) * V;
  Pack<T, V> packs[dropout_packs];
  DSPP_UNROLL
  for (int k = 0; k < dropout_packs; ++k)
    if (first + k * step < n) packs[k] = load_pack<V>(x + tile.row * n + first + k * step);
  Size rest = tile.row, begin = at.origin[at.dimensions - 1], stride = at.global[at.dimensions - 1];
  for (int d = at.dimensions - 2; d >= 0; --d) {
    begin += (rest % at.extents[d] + at.origin[d]) * stride;
    rest /= at.extents[d];
    stride *= at.global[d];
  }
  PhiloxStream stream = at.stream_of_step();
  stream.sample += rest;
  const auto factor = static_cast<float>(at.factor);
  std::uint32_t bits[dropout_packs][V];
  if (V > 1 && (begin + first) % 4 == 0) {
    if constexpr (V > 1) draw_bits(stream, begin + first, step, bits);
  } else {
    DSPP_UNROLL
    for (int k = 0; k < dropout_packs; ++k) draw_bits(stream, begin + first + k * step, bits[k]);
  }
  DSPP_UNROLL
  for (int k = 0; k < dropout_packs; ++k)
    if (const Size j = first + k * step; j < n) {
      float a[V];
      unpack(a, packs[k]);
      for (int v = 0; v < V; ++v) a[v] = bits[k][v] >= at.threshold ? a[v] * factor : 0;
      store_at_once(y + tile.row * n + j, a);
    }
}

/// The same window with the last dimensions as one, where it spans all but the first of them.
inline kernels::DropoutArguments merged(kernels::DropoutArguments at) {
  while (at.dimensions > 1) {
    const int last = at.dimensions - 1;
    if (at.extents[last] != at.global[last]) break;
    at.extents[last - 1] *= at.extents[last];
    at.origin[last - 1] *= at.extents[last];
    at.global[last - 1] *= at.extents[last];
    --at.dimensions;
  }
  return at;
}

/// y may be x.
template <class T>
void dropout(cudaStream_t stream, const kernels::DropoutArguments& window, T* y, const T* x) {
  const kernels::DropoutArguments at = merged(window);
  Size rows = at.samples;
  for (int d = 0; d + 1 < at.dimensions; ++d) rows *= at.extents[d];
  const Size n = at.extents[at.dimensions - 1];
  const bool aligned = rows_are_aligned<T>(n, y, x);
  const RowTiles tiles = row_tiles(rows, aligned ? n / pack_length<T> : n, dropout_packs);
  launch(Work{"dropout", rows, n}, aligned ? dropout_kernel<pack_length<T>, T> : dropout_kernel<1, T>, tiles.blocks,
         tiles.block, stream, at, rows, n, tiles.strips, y, x);
}

}  // namespace dspp::gpu
