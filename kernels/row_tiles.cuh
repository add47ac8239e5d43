// SPDX-License-Identifier: Apache-2.0
/// A grid over rows of packs, for kernels that do the same in every row: a block has y rows of x packs.
#pragma once

#include <kernels/device.cuh>

namespace dspp::gpu {

/// `strips` blocks lie side by side over a row, and `blocks` in all.
struct RowTiles {
  Block block;
  Size strips = 0, blocks = 0;
};

/// Blocks of 256 threads for rows of `packs`.
constexpr RowTiles row_tiles(Size rows, Size packs) {
  RowTiles tiles{{warp_size, 256 / warp_size}};
  while (tiles.block.x < packs && tiles.block.x < 256) tiles.block.x *= 2;
  tiles.block.y = 256 / tiles.block.x;
  tiles.strips = blocks_for(packs, tiles.block.x);
  tiles.blocks = tiles.strips * blocks_for(rows, tiles.block.y);
  return tiles;
}

/// The row and the pack of a thread. Either may be beyond the last.
struct Tile {
  Size row, pack;
};

__device__ inline Tile tile_of_thread(Size strips) {
  const unsigned strip = blockIdx.x % static_cast<unsigned>(strips), rows = blockIdx.x / static_cast<unsigned>(strips);
  return {static_cast<Size>(rows) * blockDim.y + threadIdx.y, static_cast<Size>(strip) * blockDim.x + threadIdx.x};
}

}  // namespace dspp::gpu
