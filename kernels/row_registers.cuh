// SPDX-License-Identifier: Apache-2.0
/// Rows in the registers of the threads that share them: a warp for a short row, a block for a longer one.
#pragma once

#include <kernels/element.cuh>

namespace dspp::gpu {

/// Elements of a row in one thread's registers: 64 bytes.
template <class T>
inline constexpr int row_values = 64 / static_cast<int>(sizeof(T));
/// The longest row in a block's registers.
template <class T>
inline constexpr Size longest_row = Size{512} * row_values<T>;
inline constexpr int long_row_threads = 512;

/// The threads that share a row of n elements: a warp, four of which are a block, or a block.
template <class T>
constexpr Block row_block(Size n) {
  const int threads = static_cast<int>(blocks_for(n > 0 ? n : 1, warp_size * row_values<T>)) * warp_size;
  return {threads, threads == warp_size ? 4 : 1};
}

}  // namespace dspp::gpu
