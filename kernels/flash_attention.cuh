// SPDX-License-Identifier: Apache-2.0
/// Attention on tensor cores: bf16 and f16 with sums in f32, heads of a multiple of 8 columns, at most 128; causal and
/// full masks, windows, soft caps, ranges of keys, groups of heads. Formulas and shapes are those of attention.cuh.
///
///   for each tile of 128 queries, for each tile of 64 keys that one of them sees:
///     s = q k^T;   m' = max(m, row maxima of s);   p = exp(s - m'), rounded to T
///     l = exp(m - m') l + row sums of p;   o = exp(m - m') o + p v;   m = m'
///   y = o / l,   lse = m + log l;   of a query without keys y is 0 and lse infinity
///
/// A block has a tile of queries and 4 warps of 32 queries. o stays in registers, the scores go through shared memory,
/// where a lane has the row of a query. k of the next tile is copied while p v is computed, and v while q k^T is.
/// Tiles of keys that no query of the tile, or of the warp, sees are passed over. Values of keys that a query does not
/// see count as 0 times themselves: they must be numbers.
///
/// Bytes     q, y once, k and v once for each tile of queries and query head, from the L2 cache. For 32 x 64 scores a
///           warp multiplies 4096 D times and moves 24 KiB + 320 D bytes of shared memory, at D = 128 64 KiB: at 128
///           bytes a clock that is half of the rate of an H100's tensor cores, at D = 64 36 %. More needs products
///           that read shared memory themselves (wgmma).
/// Memory    shared: 71 KiB at D = 64, 87 at 96, 103 at 128, so two blocks a multiprocessor; none beside
/// Source    Dao 2023, FlashAttention-2, algorithm 1
#pragma once

#include <kernels/flash_tiles.cuh>

namespace dspp::gpu {

/// Extents of the kernel's tiles, and where they lie in shared memory.
template <class T, int D>
struct FlashForward {
  static constexpr int warps = 4, rows = 32, queries = warps * rows, keys = 64, threads = warps * warp_size;
  static constexpr int stride = tile_stride(D), score_stride = keys + 4;  // of f32
  static constexpr int p_stride = 2 * score_stride;                       // of T, in the scores' place
  static constexpr Size k = tile_bytes<T>(queries, D), v = k + tile_bytes<T>(keys, D),
                        scores = v + tile_bytes<T>(keys, D), factors = scores + Size{queries} * score_stride * 4,
                        bytes = factors + Size{queries} * 4;
};

/// The maximum and the sum of a query's row so far. A lane has it.
struct FlashRow {
  float largest = minus_infinity, sum = 0;

  /// Replaces scores, in units of `unit` log 2, by probabilities: those of the keys [begin, end), which may lie beyond
  /// the tile, and 0 for the others. Returns by how much what was summed before shrinks.
  template <class T, int Keys>
  __device__ float add(float* row, int begin, int end, float unit) {
    float s[Keys];
    DSPP_UNROLL
    for (int c = 0; c < Keys; c += 4) load(*reinterpret_cast<float(*)[4]>(s + c), row + c);
    if (begin > 0 || end < Keys) {
      DSPP_UNROLL
      for (int c = 0; c < Keys; ++c)
        if (c < begin || c >= end) s[c] = minus_infinity;
    }
    float parts[4] = {largest, largest, largest, largest};
    DSPP_UNROLL
    for (int c = 0; c < Keys; ++c) parts[c % 4] = fmaxf(parts[c % 4], s[c]);
    const float maximum = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
    const float shift = maximum == minus_infinity ? 0.0f : maximum * unit;
    const float factor = exp2_approximate(largest * unit - shift);
    DSPP_UNROLL
    for (int i = 0; i < 4; ++i) parts[i] = 0;
    DSPP_UNROLL
    for (int c = 0; c < Keys; ++c) {
      s[c] = exp2_approximate(s[c] * unit - shift);
      parts[c % 4] += s[c];
    }
    DSPP_UNROLL
    for (int c = 0; c < Keys; c += 8) store(reinterpret_cast<T*>(row) + c, *reinterpret_cast<const float(*)[8]>(s + c));
    sum = sum * factor + ((parts[0] + parts[1]) + (parts[2] + parts[3]));
    largest = maximum;
    return factor;
  }
};

template <class T, int D>
__global__ void __launch_bounds__(FlashForward<T, D>::threads, 2)
    flash_attention_kernel(AttentionOperands<T> of, HeadsOf<T> y, float* log_sum_exp, Size tiles) {
  using At = FlashForward<T, D>;
  const auto& at = of.at;
  const FlashBlock block(tiles, at.heads);
  const Size first_query = (tiles - 1 - block.tile) * At::queries;  // those with most keys first
  const Size kv_head = block.head / at.group();
  const int warp = static_cast<int>(threadIdx.x / warp_size), lane = static_cast<int>(threadIdx.x % warp_size);
  T *const q = shared_part<T>(0) + warp * At::rows * At::stride, *const k = shared_part<T>(At::k),
           *const v = shared_part<T>(At::v);
  float *const scores = shared_part<float>(At::scores) + warp * At::rows * At::score_stride, *const factors =
                                                                                                 shared_part<float>(
                                                                                                     At::factors) +
                                                                                                 warp * At::rows;

  const SeenKeys seen = of.seen(block.sample);
  const Size own_warp = first_query + warp * At::rows;
  const FlashSpan of_block = span_of(seen, first_query, At::queries), of_warp = span_of(seen, own_warp, At::rows),
                  of_lane = span_of(seen, own_warp + lane, 1);
  const int first_key = of_block.from / At::keys * At::keys;
  const auto copy_keys = [&](T* to, const HeadsOf<const T>& from, int key) {
    copy_rows<D, At::keys, At::threads>(to, from, at, block.sample, kv_head, key);
    __pipeline_commit();
  };

  const SumPlaces places(scores);
  Sums sums[2][D / 16];
  zero_sums(sums);
  FlashRow row;
  const Cap cap(of);
  const float unit = (cap.cap > 0 ? 1.0f : cap.scale) * log2_e;
  copy_rows<D, At::queries, At::threads>(shared_part<T>(0), of.q, at, block.sample, block.head, first_query);
  if (first_key < of_block.by) copy_keys(k, of.k, first_key);
  __pipeline_commit();
  for (int key = first_key; key < of_block.by; key += At::keys) {
    __pipeline_wait_prior(0);
    __syncthreads();  // q and k are there, and the last v has been read
    copy_keys(v, of.v, key);
    const bool is_of_warp = of_warp.meets(key, At::keys);
    if (is_of_warp) {
      Sums s[2][At::keys / 16];
      zero_sums(s);
      multiply_tiles<RightColumns, D>(s, q, At::stride, k, At::stride);
      DSPP_UNROLL
      for (int m = 0; m < 2; ++m) {
        DSPP_UNROLL
        for (int n = 0; n < At::keys / 16; ++n)
          store_sums(scores + 16 * m * At::score_stride + 16 * n, s[m][n], At::score_stride);
      }
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // v and the scores are there, and k has been read
    if (key + At::keys < of_block.by) copy_keys(k, of.k, key + At::keys);
    if (!is_of_warp) continue;
    float* const own_scores = scores + lane * At::score_stride;
    if (cap.cap > 0) {
      float slope;
      for (int c = 0; c < At::keys; ++c) own_scores[c] = cap(own_scores[c], slope);
    }
    const float factor = row.template add<T, At::keys>(own_scores, of_lane.from - key, of_lane.by - key, unit);
    const bool shrinks = __any_sync(all_lanes, factor != 1);
    factors[lane] = factor;
    __syncwarp();  // probabilities and factors are there
    if (shrinks) {
      DSPP_UNROLL
      for (int m = 0; m < 2; ++m) {
        DSPP_UNROLL
        for (int i = 0; i < lane_sums; ++i) {
          const float by = factors[16 * m + places.row(i)];
          DSPP_UNROLL
          for (int n = 0; n < D / 16; ++n) sums[m][n].x[i] *= by;
        }
      }
    }
    multiply_tiles<RightRows, At::keys>(sums, reinterpret_cast<const T*>(scores), At::p_stride, v, At::stride);
  }
  __pipeline_wait_prior(0);
  __syncthreads();  // also without keys: q's copies have ended, and y may take its place
  factors[lane] = row.sum == 0 ? 0.0f : 1 / row.sum;
  __syncwarp();
  store_rows<D>(y, at, block.sample, block.head, own_warp, q, sums, places, [&](int i) { return factors[i]; });
  if (own_warp + lane < at.sequence)
    log_sum_exp[(block.sample * at.heads + block.head) * at.sequence + own_warp + lane] =
        row.sum == 0 ? -minus_infinity : row.largest * (cap.cap > 0 ? 1.0f : cap.scale) + logf(row.sum);
}

/// Where flash_takes(of, y).
template <class T>
void flash_attention(cudaStream_t stream, const AttentionOperands<T>& of, HeadsOf<T> y, float* log_sum_exp) {
  with_tile_columns(of.at.head_dim, [&](auto columns) {
    using At = FlashForward<T, decltype(columns)::value>;
    const Size tiles = blocks_for(of.at.sequence, At::queries);
    launch(Work{"flash_attention", of.at.batch * of.at.heads * of.at.sequence, of.at.head_dim},
           flash_attention_kernel<T, decltype(columns)::value>, of.at.batch * of.at.heads * tiles,
           {At::threads, 1, At::bytes}, stream, of, y, log_sum_exp, tiles);
  });
}

}  // namespace dspp::gpu
