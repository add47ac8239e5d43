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

/// Blocks of 256 threads for rows of `packs`, of which a thread has `each`.
constexpr RowTiles row_tiles(Size rows, Size packs, int each = 1) {
  RowTiles tiles{{warp_size, 256 / warp_size}};
  while (tiles.block.x * each < packs && tiles.block.x < 256) tiles.block.x *= 2;
  tiles.block.y = 256 / tiles.block.x;
  tiles.strips = blocks_for(packs, tiles.block.x * each);
  tiles.blocks = tiles.strips * blocks_for(rows, tiles.block.y);
  return tiles;
}

/// The row and the first pack of a thread, whose packs are blockDim.x apart. Either may be beyond the last.
struct Tile {
  Size row, pack;
};

__device__ inline Tile tile_of_thread(Size strips, int each = 1) {
  const unsigned strip = blockIdx.x % static_cast<unsigned>(strips), rows = blockIdx.x / static_cast<unsigned>(strips);
  return {static_cast<Size>(rows) * blockDim.y + threadIdx.y,
          static_cast<Size>(strip) * blockDim.x * static_cast<unsigned>(each) + threadIdx.x};
}

}  // namespace dspp::gpu
