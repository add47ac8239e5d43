// SPDX-License-Identifier: Apache-2.0
/// The backward pass of flash_attention.cuh, of what that takes: formulas and shapes are those of attention.cuh.
///
///   first:   D[i] = dy[i] y[i]
///   keys:    for each tile of 128 keys, for each query head of its group, for each tile of 64 queries that sees one:
///              s^T = k q^T;   p^T = exp(s^T - lse);   ds^T = p^T (v dy^T - D);   dv += p^T dy;   dk += ds^T q
///   queries: for each tile of 128 queries, for each tile of 32 keys that one sees:
///              s = q k^T;     p = exp(s - lse);       ds = p (dy v^T - D);       dq += ds k
///
/// Each sum has one owner, a warp, and one order: no atomics, the same bits in every run, for seven products instead of
/// the five of a kernel that adds dq in the memory. Sums stay in registers, p and ds are rounded to T and go through
/// shared memory, where a warp has its own rows. Copies of the next tile run beside the products.
///
/// Bytes     dy, y for D; q, dy once for each tile of keys and of queries, k, v once for each tile of queries, from
///           the L2 cache. At D = 128 a warp moves some 108 KiB of shared memory for four products of 16 x 64 scores,
///           and some 54 KiB for three of 32 x 32: at 128 bytes a clock 30 and 44 % of the rate of an H100's tensor
///           cores, and 25 % in both, the two recomputed products not counted.
/// Memory    shared: keys 110 KiB at D = 64, 142 at 96, 174 at 128; queries 62, 84 and 106. Beside: D, f32 [batch,
///           heads, sequence]
/// Source    Dao 2023, FlashAttention-2, algorithm 2; Dao et al. 2022, FlashAttention, appendix B, for D
#pragma once

#include <kernels/flash_attention.cuh>

namespace dspp::gpu {

/// What a tile needs of a query.
struct alignas(16) FlashQuery {
  float log2_sum_exp, own;  // lse / log 2, and D
  FlashSpan keys;
};

/// Of query i of a head; one that the sample does not have sees nothing.
template <class T>
__device__ inline FlashQuery flash_query(const AttentionUpstream<T>& from, const float* own, const SeenKeys& seen,
                                         Size sample, Size head, Size i) {
  if (i >= from.of.at.sequence) return {-minus_infinity, 0, {}};
  const Size row = (sample * from.of.at.heads + head) * from.of.at.sequence + i;
  return {from.log_sum_exp[row] * log2_e, own[row], span_of(seen, i, 1)};
}

/// p of a product q k and a key, and ds of it and a product dy v.
struct FlashGradient {
  Cap cap;
  __device__ float operator()(const FlashQuery& query, int key, float qk, float dyv, float& ds) const {
    float slope;
    const float s = cap(qk, slope);
    const bool is_seen = key >= query.keys.from && key < query.keys.by;
    const float p = is_seen ? exp2_approximate(s * log2_e - query.log2_sum_exp) : 0.0f;
    ds = p * (dyv - query.own) * slope;
    return p;
  }
};

// ---- D --------------------------------------------------------------------------------------------------------------

inline constexpr int own_threads = 256, own_lanes = 16;  // 16 lanes have a row, a pack of 8 elements each

/// own[sample, head, query] = dy y.
template <class T>
__global__ void __launch_bounds__(own_threads)
    flash_own_kernel(kernels::AttentionExtents at, HeadsOf<const T> y, HeadsOf<const T> dy, float* own) {
  const Size row = static_cast<Size>(blockIdx.x) * (own_threads / own_lanes) + threadIdx.x / own_lanes;
  const int column = static_cast<int>(threadIdx.x % own_lanes) * 8;
  const Size i = row % at.sequence, head = row / at.sequence % at.heads, sample = row / at.sequence / at.heads;
  float sum = 0;
  if (sample < at.batch && column < at.head_dim) {
    float a[8], b[8];
    load(a, y.row(sample, at.sequence, i, head, at.head_dim) + column);
    load(b, dy.row(sample, at.sequence, i, head, at.head_dim) + column);
    DSPP_UNROLL
    for (int c = 0; c < 8; ++c) sum += a[c] * b[c];
  }
  for (int distance = own_lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(all_lanes, sum, distance);
  if (column == 0 && sample < at.batch) own[row] = sum;
}

// ---- dq -------------------------------------------------------------------------------------------------------------

template <class T, int D>
struct FlashQueries {
  static constexpr int warps = 4, rows = 32, queries = warps * rows, keys = 32, threads = warps * warp_size;
  static constexpr int stride = tile_stride(D), ds_stride = tile_stride(keys);
  static constexpr Size dy = tile_bytes<T>(queries, D), kv = 2 * dy, ds = kv + 3 * tile_bytes<T>(keys, D),
                        rows_of = ds + tile_bytes<T>(queries, keys),
                        bytes = rows_of + queries * Size{sizeof(FlashQuery)};
};

template <class T, int D>
__global__ void __launch_bounds__(FlashQueries<T, D>::threads, 2)
    flash_queries_kernel(AttentionUpstream<T> from, HeadsOf<T> dq, const float* own, Size tiles) {
  using At = FlashQueries<T, D>;
  const auto& at = from.of.at;
  const FlashBlock block(tiles, at.heads);
  const Size first_query = (tiles - 1 - block.tile) * At::queries, kv_head = block.head / at.group();
  const int warp = static_cast<int>(threadIdx.x / warp_size);
  T *const q = shared_part<T>(0) + warp * At::rows * At::stride,
           *const dy = shared_part<T>(At::dy) + warp * At::rows * At::stride,
           *const ds = shared_part<T>(At::ds) + warp * At::rows * At::ds_stride;
  T *k = shared_part<T>(At::kv), *v = k + At::keys * At::stride, *spare = v + At::keys * At::stride;
  FlashQuery* const queries = shared_part<FlashQuery>(At::rows_of) + warp * At::rows;

  const SeenKeys seen = from.of.seen(block.sample);
  const Size own_warp = first_query + warp * At::rows;
  const FlashSpan of_block = span_of(seen, first_query, At::queries), of_warp = span_of(seen, own_warp, At::rows);
  const int first_key = of_block.from / At::keys * At::keys;
  const auto copy_keys = [&](T* to, const HeadsOf<const T>& heads, int key) {
    copy_rows<D, At::keys, At::threads>(to, heads, at, block.sample, kv_head, key);
    __pipeline_commit();
  };

  const SumPlaces places(reinterpret_cast<float*>(ds));
  const FlashGradient gradient{Cap(from.of)};
  Sums sums[2][D / 16];
  zero_sums(sums);
  copy_rows<D, At::queries, At::threads>(shared_part<T>(0), from.of.q, at, block.sample, block.head, first_query);
  copy_rows<D, At::queries, At::threads>(shared_part<T>(At::dy), from.dy, at, block.sample, block.head, first_query);
  if (first_key < of_block.by) {
    copy_keys(k, from.of.k, first_key);
    copy_keys(v, from.of.v, first_key);
  }
  __pipeline_commit();
  const int lane = static_cast<int>(threadIdx.x % warp_size);
  queries[lane] = flash_query(from, own, seen, block.sample, block.head, own_warp + lane);
  for (int key = first_key; key < of_block.by; key += At::keys) {
    __pipeline_wait_prior(0);
    __syncthreads();  // k and v are there, and the last k has been read
    const bool is_last = key + At::keys >= of_block.by;
    if (!is_last) copy_keys(spare, from.of.k, key + At::keys);
    const bool is_of_warp = of_warp.meets(key, At::keys);
    if (is_of_warp) {
      Sums s[2][At::keys / 16], t[2][At::keys / 16];
      zero_sums(s);
      zero_sums(t);
      multiply_tiles<RightColumns, D>(s, q, At::stride, k, At::stride);
      multiply_tiles<RightColumns, D>(t, dy, At::stride, v, At::stride);
      DSPP_UNROLL
      for (int m = 0; m < 2; ++m) {
        DSPP_UNROLL
        for (int i = 0; i < lane_sums; ++i) {
          const int row = 16 * m + places.row(i);
          const FlashQuery query = queries[row];
          DSPP_UNROLL
          for (int n = 0; n < At::keys / 16; ++n) {
            const int column = 16 * n + places.column(i);
            float d;
            gradient(query, key + column, s[m][n].x[i], t[m][n].x[i], d);
            ds[row * At::ds_stride + column] = from_float<T>(d);
          }
        }
      }
    }
    __syncthreads();  // ds is there, and v has been read
    if (!is_last) copy_keys(v, from.of.v, key + At::keys);
    if (is_of_warp) multiply_tiles<RightRows, At::keys>(sums, ds, At::ds_stride, k, At::stride);
    T* const read = k;
    k = spare;
    spare = read;
  }
  __pipeline_wait_prior(0);
  __syncthreads();  // also without keys: q's copies have ended, and dq may take its place
  store_rows<D>(dq, at, block.sample, block.head, own_warp, q, sums, places, [&](int) { return from.of.scale; });
}

// ---- dk, dv ---------------------------------------------------------------------------------------------------------

template <class T, int D>
struct FlashKeys {
  static constexpr int warps = 8, rows = 16, keys = warps * rows, queries = 64, threads = warps * warp_size;
  static constexpr int stride = tile_stride(D), p_stride = tile_stride(queries);
  static constexpr Size v = tile_bytes<T>(keys, D), q = 2 * v, dy = q + 2 * tile_bytes<T>(queries, D),
                        p = dy + 2 * tile_bytes<T>(queries, D), ds = p + tile_bytes<T>(keys, queries),
                        rows_of = ds + tile_bytes<T>(keys, queries),
                        bytes = rows_of + 2 * queries * Size{sizeof(FlashQuery)};
};

/// The first of the queries [0, seen.queries) at which is_there(i) holds, which goes on holding; else their number.
template <class F>
__device__ inline Size first_query_where(const SeenKeys& seen, F is_there) {
  Size first = 0, end = seen.queries;
  while (first < end) {
    const Size middle = (first + end) / 2;
    if (is_there(middle))
      end = middle;
    else
      first = middle + 1;
  }
  return first;
}

template <class T, int D>
__global__ void __launch_bounds__(FlashKeys<T, D>::threads, 1)
    flash_keys_kernel(AttentionUpstream<T> from, HeadsOf<T> dk, HeadsOf<T> dv, const float* own, Size tiles) {
  using At = FlashKeys<T, D>;
  const auto& at = from.of.at;
  const FlashBlock block(tiles, at.kv_heads);
  const int first_key = static_cast<int>(block.tile) * At::keys;
  const int warp = static_cast<int>(threadIdx.x / warp_size);
  const int own_warp = first_key + warp * At::rows;
  T *const k = shared_part<T>(0) + warp * At::rows * At::stride,
           *const v = shared_part<T>(At::v) + warp * At::rows * At::stride,
           *const p = shared_part<T>(At::p) + warp * At::rows * At::p_stride,
           *const ds = shared_part<T>(At::ds) + warp * At::rows * At::p_stride;

  // The tiles of queries, those of each query head after another.
  const SeenKeys seen = from.of.seen(block.sample);
  const Size first = first_query_where(seen, [&](Size i) { return seen.by(i) > first_key; });
  const Size end = first_query_where(seen, [&](Size i) { return seen.from(i) >= first_key + At::keys; });
  const Size first_tile = first / At::queries, count = (end + At::queries - 1) / At::queries - first_tile;
  const Size steps = first < end ? count * at.group() : 0;
  const auto copy_step = [&](Size step) {
    const Size head = block.head * at.group() + step / count, query = (first_tile + step % count) * At::queries;
    const int set = static_cast<int>(step % 2) * At::queries;
    copy_rows<D, At::queries, At::threads>(shared_part<T>(At::q) + set * At::stride, from.of.q, at, block.sample, head,
                                           query);
    copy_rows<D, At::queries, At::threads>(shared_part<T>(At::dy) + set * At::stride, from.dy, at, block.sample, head,
                                           query);
    __pipeline_commit();
    const int i = static_cast<int>(threadIdx.x);
    if (i < At::queries)
      shared_part<FlashQuery>(At::rows_of)[set + i] = flash_query(from, own, seen, block.sample, head, query + i);
  };

  const SumPlaces places(reinterpret_cast<float*>(p));
  const FlashGradient gradient{Cap(from.of)};
  Sums sums_k[1][D / 16], sums_v[1][D / 16];
  zero_sums(sums_k);
  zero_sums(sums_v);
  copy_rows<D, At::keys, At::threads>(shared_part<T>(0), from.of.k, at, block.sample, block.head, first_key);
  copy_rows<D, At::keys, At::threads>(shared_part<T>(At::v), from.of.v, at, block.sample, block.head, first_key);
  if (steps > 0) copy_step(0);
  __pipeline_commit();
  for (Size step = 0; step < steps; ++step) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this step's tiles are there, and the last ones have been read
    if (step + 1 < steps) copy_step(step + 1);
    const int set = static_cast<int>(step % 2) * At::queries;
    const T *const q = shared_part<T>(At::q) + set * At::stride, *const dy = shared_part<T>(At::dy) + set * At::stride;
    const FlashQuery* const queries = shared_part<FlashQuery>(At::rows_of) + set;
    const Size left = at.sequence - (first_tile + step % count) * At::queries;
    const int last = static_cast<int>(left < At::queries ? left : At::queries) - 1;
    if (!FlashSpan{queries[0].keys.from, queries[last].keys.by}.meets(own_warp, At::rows)) continue;
    for (int begin = 0; begin < At::queries; begin += 32) {
      Sums s[1][2], t[1][2];
      zero_sums(s);
      zero_sums(t);
      multiply_tiles<RightColumns, D>(s, k, At::stride, q + begin * At::stride, At::stride);
      multiply_tiles<RightColumns, D>(t, v, At::stride, dy + begin * At::stride, At::stride);
      DSPP_UNROLL
      for (int n = 0; n < 2; ++n) {
        DSPP_UNROLL
        for (int i = 0; i < lane_sums; ++i) {
          const int row = places.row(i), column = begin + 16 * n + places.column(i);
          float d;
          const float probability = gradient(queries[column], own_warp + row, s[0][n].x[i], t[0][n].x[i], d);
          p[row * At::p_stride + column] = from_float<T>(probability);
          ds[row * At::p_stride + column] = from_float<T>(d);
        }
      }
    }
    __syncwarp();  // p and ds are there
    multiply_tiles<RightRows, At::queries>(sums_v, p, At::p_stride, dy, At::stride);
    multiply_tiles<RightRows, At::queries>(sums_k, ds, At::p_stride, q, At::stride);
  }
  __pipeline_wait_prior(0);
  __syncthreads();  // also without queries: the copies of k and v have ended, and dk and dv may take their place
  store_rows<D>(dk, at, block.sample, block.head, own_warp, k, sums_k, places, [&](int) { return from.of.scale; });
  store_rows<D>(dv, at, block.sample, block.head, own_warp, v, sums_v, places, [](int) { return 1.0f; });
}

// ---- launches -------------------------------------------------------------------------------------------------------

/// Where flash_takes(of, y, dy, dq, dk, dv). `own`: f32 [batch, heads, sequence], of no use afterwards.
template <class T>
void flash_attention_backward(cudaStream_t stream, const AttentionUpstream<T>& from, HeadsOf<T> dq, HeadsOf<T> dk,
                              HeadsOf<T> dv, float* own) {
  const auto& at = from.of.at;
  const Size rows = at.batch * at.heads * at.sequence;
  const Work work{"flash_attention_backward", rows, at.head_dim};
  launch(work, flash_own_kernel<T>, blocks_for(rows, own_threads / own_lanes), {own_threads}, stream, at, from.y,
         from.dy, own);
  with_tile_columns(at.head_dim, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    using Queries = FlashQueries<T, D>;
    using Keys = FlashKeys<T, D>;
    const Size query_tiles = blocks_for(at.sequence, Queries::queries), key_tiles = blocks_for(at.sequence, Keys::keys);
    launch(work, flash_queries_kernel<T, D>, at.batch * at.heads * query_tiles, {Queries::threads, 1, Queries::bytes},
           stream, from, dq, own, query_tiles);
    launch(work, flash_keys_kernel<T, D>, at.batch * at.kv_heads * key_tiles, {Keys::threads, 1, Keys::bytes}, stream,
           from, dk, dv, own, key_tiles);
  });
}

}  // namespace dspp::gpu
