// SPDX-License-Identifier: Apache-2.0
/// How kernels/ cut their work, and the workspaces that follow: functions of extents alone, so that a plan knows them
/// and results do not depend on the GPU.
#pragma once

#include <algorithm>

#include <dspp/base/types.hpp>

namespace dspp::gpu {

inline constexpr int warp_size = 32;

/// Threads of one block: x share a row, y rows. And the shared memory that its launch gives it.
struct Block {
  int x = 256, y = 1;
  Size shared_bytes = 0;
};

constexpr Size blocks_for(Size count, Size each) {
  return (count + each - 1) / each;
}

/// Elements of T in one access of 16 bytes.
template <class T>
inline constexpr int pack_length = 16 / static_cast<int>(sizeof(T));

// ---- norms, backward ------------------------------------------------------------------------------------------------

/// Elements of a row in one thread's registers in the backward pass, with their gradients of gamma and beta.
inline constexpr int backward_values = 16;
inline constexpr Size longest_backward_row = Size{512} * backward_values;

/// The threads that share a row of the backward pass: whole warps. A block has four at least.
constexpr Block backward_block(Size n) {
  const int threads = static_cast<int>(blocks_for(n, warp_size * backward_values)) * warp_size;
  return {threads, threads < 128 ? 128 / threads : 1};
}

/// Pieces of rows that are summed apart, and then in order: as many as an H100 or H200 runs blocks at once.
constexpr Size norm_pieces(Size rows, Size n) {
  if (n > longest_backward_row) return rows < 64 * 16 ? blocks_for(rows, 16) : 64;
  const Block block = backward_block(n > 0 ? n : 1);
  const Size most = 132 * (512 / (block.x * block.y)), needed = blocks_for(rows, block.y);
  return needed < most ? needed : most;
}

/// Floats of the scratch of layer_norm_backward and rms_norm_backward.
constexpr Size layer_norm_scratch(Size rows, Size n) {
  return norm_pieces(rows, n) * 2 * n;
}
constexpr Size rms_norm_scratch(Size rows, Size n) {
  return norm_pieces(rows, n) * n;
}

// ---- sums -----------------------------------------------------------------------------------------------------------

inline constexpr Block column_block{warp_size, 8};

/// Pieces of the rows of a column_sum: some 1056 blocks fill an H100's or H200's 132 multiprocessors.
template <class T>
constexpr Size column_pieces(Size rows, Size n) {
  const Size strips = blocks_for(n, warp_size * pack_length<T>), most = 1056 / (strips > 0 ? strips : 1) + 1;
  const Size needed = blocks_for(rows, column_block.y * 4);
  return needed < most ? needed : most;
}

/// Floats of the scratch of column_sum.
template <class T>
constexpr Size column_sum_scratch(Size rows, Size n) {
  return column_pieces<T>(rows, n) * n;
}

inline constexpr int norm_threads = 512;
inline constexpr Size most_norm_pieces = 132 * 4;

/// Doubles of the scratch of squared_norm.
constexpr Size squared_norm_scratch(Size count) {
  const Size needed = blocks_for(count, norm_threads * 32);
  return needed < most_norm_pieces ? (needed > 0 ? needed : 1) : most_norm_pieces;
}

// ---- products -------------------------------------------------------------------------------------------------------

/// Bytes that a product of [rows, columns] may take beside its operands: eight partial sums in f32, and at most what
/// cuBLASLt is known to make use of.
constexpr Size product_workspace(Size rows, Size columns) {
  return std::min(Size{32} * rows * columns, Size{32} << 20);
}

// ---- embedding, backward --------------------------------------------------------------------------------------------

inline constexpr int embedding_window = 32;

/// Floats of EmbeddingScratch::parts.
constexpr Size embedding_parts(Size count, Size n) {
  return blocks_for(count, embedding_window) * 2 * n;
}
constexpr int key_bits(Size rows) {
  int bits = 1;
  while (rows >> bits > 0) ++bits;
  return bits;
}
/// Bytes to sort `count` pairs in: a second copy of them, and what CUB counts of each block. Where CUB wants more, it
/// refuses the sort, which ends with an error that names sort_pairs.
constexpr Size most_sort_workspace(Size count) {
  return 9 * count + 64 * 1024;
}

}  // namespace dspp::gpu
