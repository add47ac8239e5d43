// SPDX-License-Identifier: Apache-2.0
/// Attention by warpgroups, on GPUs of compute capability 9.0: what flash_attention.cuh computes, of what that takes,
/// on tensor cores that read shared memory themselves. Formulas and shapes are those of attention.cuh.
///
///   for each tile of 64 queries, for each tile of 64 keys that one of them sees (at D = 128, of 128 and 128):
///     s = q k^T;   m' = max(m, row maxima of s);   p = exp(s - m'), rounded to T
///     l = exp(m - m') l + row sums of p;   o = exp(m - m') o + p v;   m = m'
///   y = o / l,   lse = m + log l;   of a query without keys y is 0 and lse infinity
///
/// A warpgroup has 64 queries; s, p and o stay in registers, a row in four lanes. The tensor cores multiply p v
/// of the last tile while the threads take the maxima and the exponentials of this one's scores, and the next k and v
/// are copied meanwhile: one barrier a tile. Values of keys that a query does not see count as 0 times themselves: they
/// must be numbers.
///
/// Bytes     q, y once, k and v once for each tile of queries and query head, from the L2 cache
/// Memory    shared: 41 KiB at D = 64, 61 at 96, 161 at 128; none beside
/// Source    Dao 2023, FlashAttention-2, algorithm 1; Shah et al. 2024, FlashAttention-3, section 3.2, for the order of
///           products and softmax
#pragma once

#include <kernels/flash_tiles.cuh>
#include <kernels/warpgroup.cuh>

namespace dspp::gpu {

/// What the kernels of warpgroups share: tiles begin at a multiple of 1024 bytes of shared memory.
template <class T, int D, int Rows>
__device__ inline SwizzledTile<T, D, Rows> swizzled_part(Size bytes) {
  const auto base = reinterpret_cast<std::uintptr_t>(shared_memory());
  return {reinterpret_cast<T*>((base + 1023) / 1024 * 1024 + static_cast<std::uintptr_t>(bytes))};
}
inline constexpr Size swizzled_slack = 1024;  // of shared memory, for that

/// Rows [first, first + Rows) of a head into a tile, by all threads of a block, asynchronously. Rows that the sample
/// does not have, and columns beyond head_dim, are 0.
template <int Threads, class T, int D, int Rows>
__device__ inline void copy_rows(const SwizzledTile<T, D, Rows>& to, const HeadsOf<const T>& from,
                                 const kernels::AttentionExtents& at, Size sample, Size head, Size first) {
  using Tile = SwizzledTile<T, D, Rows>;
  constexpr int in_row = Tile::columns / 8, step = Threads / in_row;  // rows that the threads copy at once
  static_assert(step % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / in_row, column = static_cast<int>(threadIdx.x) % in_row * 8;
  const Size left = at.sequence - first;
  const int rows = left < Rows ? static_cast<int>(left) : Rows;
  const T* source = from.row(sample, at.sequence, first + row, head, at.head_dim) + column;
  T* const place = to.pack(row, column);
  DSPP_UNROLL
  for (int done = 0; done < Rows; done += step) {
    DSPP_UNROLL
    for (int block = 0; block < D / Tile::columns; ++block) {
      if (Rows % step != 0 && done + row >= Rows) break;
      auto* const to_pack =
          reinterpret_cast<Pack<T, 8>*>(place + block * (Rows * Tile::columns) + done * Tile::columns);
      copy_pack_async(to_pack, source + block * Tile::columns,
                      done + row < rows && block * Tile::columns + column < at.head_dim);
    }
    source += step * from.stride;
  }
}

/// Sums [64, D] of a warpgroup, times factor[half], into rows of a head from row `first` on, by way of rows [row, row +
/// 64) of a tile, which nobody reads any more.
template <class T, int D, int Rows>
__device__ inline void store_group(const HeadsOf<T>& to, const kernels::AttentionExtents& at, Size sample, Size head,
                                   Size first, const SwizzledTile<T, D, Rows>& tile, int row, const GroupSums<D>& sums,
                                   const float (&factor)[2]) {
  const int own = row_of_thread();
  DSPP_UNROLL
  for (int i = 0; i < GroupSums<D>::count; i += 2) {
    const float by = factor[half_of_sum(i)];
    *reinterpret_cast<std::uint32_t*>(tile.element(row + own + 8 * half_of_sum(i), column_of_sum(i))) =
        detail::join<T>(sums.x[i] * by, sums.x[i + 1] * by);
  }
  __syncwarp();  // a warp stores its own 16 rows
  const int packs = static_cast<int>(at.head_dim) / 8, first_own = own / 16 * 16;
  for (int i = static_cast<int>(threadIdx.x % warp_size); i < 16 * packs; i += warp_size) {
    const int r = first_own + i / packs, column = i % packs * 8;
    if (first + r < at.sequence)
      store_pack(to.row(sample, at.sequence, first + r, head, at.head_dim) + column,
                 load_pack<8>(tile.pack(row + r, column)));
  }
}

/// The sum, or the largest, of four lanes that have a row.
__device__ inline float sum_of_quad(float x) {
  x += __shfl_xor_sync(all_lanes, x, 1);
  return x + __shfl_xor_sync(all_lanes, x, 2);
}
__device__ inline float largest_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

/// Of a thread's two rows, the keys that they see, their largest score so far, and this lane's part of their sums.
struct GroupRows {
  FlashSpan keys[2];
  float largest[2] = {minus_infinity, minus_infinity}, sum[2] = {0, 0};

  __device__ GroupRows(const SeenKeys& seen, Size first)
      : keys{span_of(seen, first + row_of_thread(), 1), span_of(seen, first + row_of_thread() + 8, 1)} {}

  /// Replaces scores of the keys from `key` on, in units of `unit` log 2, by probabilities, 0 of keys that a row does
  /// not see. factor: by how much what was summed before shrinks.
  template <int Keys>
  __device__ void add(GroupSums<Keys>& s, int key, float unit, float (&factor)[2]) {
    const bool is_whole =
        keys[0].from <= key && keys[1].from <= key && keys[0].by >= key + Keys && keys[1].by >= key + Keys;
    if (!is_whole) {
      DSPP_UNROLL
      for (int i = 0; i < GroupSums<Keys>::count; ++i) {
        const FlashSpan& seen = keys[half_of_sum(i)];
        const int own = key + column_of_sum(i);
        if (own < seen.from || own >= seen.by) s.x[i] = minus_infinity;
      }
    }
    float shift[2];
    DSPP_UNROLL
    for (int half = 0; half < 2; ++half) {
      float maximum = largest[half];
      DSPP_UNROLL
      for (int i = 2 * half; i < GroupSums<Keys>::count; i += 4) maximum = fmaxf(maximum, fmaxf(s.x[i], s.x[i + 1]));
      maximum = largest_of_quad(maximum);
      shift[half] = maximum == minus_infinity ? 0.0f : maximum * unit;
      factor[half] = exp2_approximate(largest[half] * unit - shift[half]);
      largest[half] = maximum;
      sum[half] *= factor[half];
    }
    DSPP_UNROLL
    for (int i = 0; i < GroupSums<Keys>::count; ++i) {
      s.x[i] = exp2_approximate(s.x[i] * unit - shift[half_of_sum(i)]);
      sum[half_of_sum(i)] += s.x[i];
    }
  }
};

/// Extents of the kernel's tiles, and where they lie in shared memory. Of some that were timed on an H200 these were
/// the fastest: blocks of one warpgroup, several on a multiprocessor, whose products and exponentials meet by chance;
/// at D = 128, where registers allow two warpgroups only, these with longer tiles.
template <class T, int D>
struct GroupForward {
  static constexpr int groups = D == 128 ? 2 : 1, queries = groups * group_rows, keys = D == 128 ? 128 : 64,
                       threads = groups * group_threads,
                       blocks = D == 128  ? 1
                                : D == 96 ? 3
                                          : 4;
  static constexpr Size k = SwizzledTile<T, D, queries>::bytes, tile = SwizzledTile<T, D, keys>::bytes,
                        v = k + 2 * tile, bytes = v + 2 * tile + swizzled_slack;
};

template <class T, int D>
__device__ inline void group_forward(const AttentionOperands<T>& of, const HeadsOf<T>& y, float* log_sum_exp,
                                     Size tiles) {
  using At = GroupForward<T, D>;
  using Keys = SwizzledTile<T, D, At::keys>;
  const auto& at = of.at;
  const FlashBlock block(tiles, at.heads);
  const Size first_query = (tiles - 1 - block.tile) * At::queries;  // those with most keys first
  const Size kv_head = block.head / at.group();
  const int own = static_cast<int>(threadIdx.x / group_threads) * group_rows;  // of this warpgroup, in the tile
  const auto q = swizzled_part<T, D, At::queries>(0);
  const auto k = [&](int tile) { return swizzled_part<T, D, At::keys>(At::k + tile % 2 * At::tile); };
  const auto v = [&](int tile) { return swizzled_part<T, D, At::keys>(At::v + tile % 2 * At::tile); };

  const SeenKeys seen = of.seen(block.sample);
  const FlashSpan of_block = span_of(seen, first_query, At::queries);
  const int first_key = of_block.from / At::keys * At::keys;
  const int count = of_block.by > first_key ? (of_block.by - first_key + At::keys - 1) / At::keys : 0;
  GroupRows rows(seen, first_query + own);
  const Cap cap(of);
  const float unit = (cap.cap > 0 ? 1.0f : cap.scale) * log2_e;

  GroupSums<D> sums;
  GroupSums<At::keys> s;
  GroupOperand<At::keys> p;
  float factor[2];
  const auto copy = [&](const Keys& to, const HeadsOf<const T>& from, int tile) {
    copy_rows<At::threads>(to, from, at, block.sample, kv_head, first_key + tile * At::keys);
  };
  const auto wait_for_tiles = [&] {
    __pipeline_wait_prior(0);
    fence_shared();
    __syncthreads();  // they are there, and what the next copies replace has been read
  };
  const auto copy_next = [&](int tile) {
    copy(v(tile), of.v, tile);
    if (tile + 1 < count) copy(k(tile + 1), of.k, tile + 1);
    __pipeline_commit();
  };
  const auto probabilities = [&](int tile) {
    if (cap.cap > 0) {
      float slope;
      DSPP_UNROLL
      for (int i = 0; i < GroupSums<At::keys>::count; ++i) s.x[i] = cap(s.x[i], slope);
    }
    rows.add(s, first_key + tile * At::keys, unit, factor);
  };

  DSPP_UNROLL
  for (int i = 0; i < GroupSums<D>::count; ++i) sums.x[i] = 0;
  copy_rows<At::threads>(q, of.q, at, block.sample, block.head, first_query);
  if (count > 0) copy(k(0), of.k, 0);
  __pipeline_commit();
  wait_for_tiles();
  if (count > 0) {
    begin_products(s);
    multiply_rows<Sum::anew>(s, q, own, k(0));
    end_products();
    copy_next(0);
    wait_for_products<0>(s);
    probabilities(0);
    p = operand_of<T>(s);
    for (int tile = 1; tile < count; ++tile) {
      wait_for_tiles();
      begin_products(s, sums, p);
      multiply_rows<Sum::anew>(s, q, own, k(tile));
      end_products();
      multiply_operand<Sum::on>(sums, p, v(tile - 1));
      end_products();
      copy_next(tile);
      wait_for_products<1>(s);
      probabilities(tile);
      wait_for_products<0>(sums, p);
      DSPP_UNROLL
      for (int i = 0; i < GroupSums<D>::count; ++i) sums.x[i] *= factor[half_of_sum(i)];
      p = operand_of<T>(s);
    }
    wait_for_tiles();
    begin_products(sums, p);
    multiply_operand<Sum::on>(sums, p, v(count - 1));
    end_products();
    wait_for_products<0>(sums, p);
  }
  DSPP_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float sum = sum_of_quad(rows.sum[half]);
    const Size query = first_query + own + row_of_thread() + 8 * half;
    if (threadIdx.x % 4 == 0 && query < at.sequence)
      log_sum_exp[(block.sample * at.heads + block.head) * at.sequence + query] =
          sum == 0 ? -minus_infinity : rows.largest[half] * (cap.cap > 0 ? 1.0f : cap.scale) + logf(sum);
    factor[half] = sum == 0 ? 0.0f : 1 / sum;
  }
  store_group(y, at, block.sample, block.head, first_query + own, q, own, sums, factor);
}

template <class T, int D>
__global__ void __launch_bounds__(GroupForward<T, D>::threads, (GroupForward<T, D>::blocks))
    group_attention_kernel(AttentionOperands<T> of, HeadsOf<T> y, float* log_sum_exp, Size tiles) {
  if constexpr (has_warpgroups) group_forward<T, D>(of, y, log_sum_exp, tiles);
}

/// Where group_takes(of, y).
template <class T>
void group_attention(cudaStream_t stream, const AttentionOperands<T>& of, HeadsOf<T> y, float* log_sum_exp) {
  with_tile_columns(of.at.head_dim, [&](auto columns) {
    using At = GroupForward<T, decltype(columns)::value>;
    const Size tiles = blocks_for(of.at.sequence, At::queries);
    launch(Work{"group_attention", of.at.batch * of.at.heads * of.at.sequence, of.at.head_dim},
           group_attention_kernel<T, decltype(columns)::value>, of.at.batch * of.at.heads * tiles,
           {At::threads, 1, At::bytes}, stream, of, y, log_sum_exp, tiles);
  });
}

}  // namespace dspp::gpu
