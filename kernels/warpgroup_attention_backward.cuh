// SPDX-License-Identifier: Apache-2.0
/// The backward pass of warpgroup_attention.cuh, of what that takes: formulas and shapes are those of attention.cuh.
///
///   first:   D[i] = dy[i] y[i]
///   keys:    for each tile of 64 keys (128 at D = 96 and 128), for each query head of its group, for each tile of 64
///            queries that sees one:
///              s^T = k q^T;   p^T = exp(s^T - lse);   ds^T = p^T (v dy^T - D);   dv += p^T dy;   dk += ds^T q
///   queries: for each tile of 64 queries, for each tile of 64 keys that one sees:
///              s = q k^T;     p = exp(s - lse);       ds = p (dy v^T - D);       dq += ds k
///
/// Each sum has one owner, a warpgroup, and one order: no atomics, the same bits in every run, for seven products
/// instead of the five of a kernel that adds dq in the memory. Scores and sums stay in registers; p and ds, rounded to
/// T, are left operands in the places of their sums.
///
/// Bytes     dy, y for D; q, dy once for each tile of keys and of queries, k, v once for each tile of queries, from
///           the L2 cache
/// Memory    shared: keys 51 KiB at D = 64, 99 at 96, 131 at 128; queries 57, 85 and 113. Beside: D, f32 [batch, heads,
///           sequence]
/// Source    Dao 2023, FlashAttention-2, algorithm 2; Shah et al. 2024, FlashAttention-3, appendix B
#pragma once

#include <kernels/flash_attention_backward.cuh>
#include <kernels/warpgroup_attention.cuh>

namespace dspp::gpu {

/// Replaces products q k by probabilities, 0 of keys that a query does not see, times the derivative of the cap.
/// Returns the probabilities, rounded to T. Of sum i: log2_sum_exp(i), keys(i), those that its query sees, and key(i).
/// is_whole: every query sees every key.
template <class T, int N, class LogSum, class Keys, class Key>
__device__ inline GroupOperand<N> group_probabilities(GroupSums<N>& s, const Cap& cap, bool is_whole,
                                                      LogSum log2_sum_exp, Keys keys, Key key) {
  GroupOperand<N> rounded;
  const auto for_pairs = [&](auto p_of) {
    DSPP_UNROLL
    for (int i = 0; i < GroupSums<N>::count; i += 2) {
      float p[2], slope[2] = {1, 1};
      DSPP_UNROLL
      for (int j = 0; j < 2; ++j) p[j] = p_of(i + j, slope[j]);
      rounded.words[i / 8][i % 8 / 2] = detail::join<T>(p[0], p[1]);
      DSPP_UNROLL
      for (int j = 0; j < 2; ++j) s.x[i + j] = p[j] * slope[j];
    }
  };
  const auto is_seen = [&](int i) { return key(i) >= keys(i).from && key(i) < keys(i).by; };
  const float unit = cap.scale * log2_e;
  if (cap.cap > 0)
    for_pairs([&](int i, float& slope) {
      const float score = cap(s.x[i], slope);
      return is_seen(i) ? exp2_approximate(score * log2_e - log2_sum_exp(i)) : 0.0f;
    });
  else if (is_whole)
    for_pairs([&](int i, float&) { return exp2_approximate(s.x[i] * unit - log2_sum_exp(i)); });
  else
    for_pairs([&](int i, float&) { return is_seen(i) ? exp2_approximate(s.x[i] * unit - log2_sum_exp(i)) : 0.0f; });
  return rounded;
}

/// ds of those and of products dy v, rounded to T. own(i): D of sum i.
template <class T, int N, class Own>
__device__ inline GroupOperand<N> group_gradients(GroupSums<N>& s, const GroupSums<N>& dyv, Own own) {
  DSPP_UNROLL
  for (int i = 0; i < GroupSums<N>::count; ++i) s.x[i] *= dyv.x[i] - own(i);
  return operand_of<T>(s);
}

template <int N>
__device__ inline void zero_sums(GroupSums<N>& sums) {
  DSPP_UNROLL
  for (int i = 0; i < GroupSums<N>::count; ++i) sums.x[i] = 0;
}

// ---- dq -------------------------------------------------------------------------------------------------------------

template <class T, int D>
struct GroupQueries {
  static constexpr int groups = 1, queries = groups * group_rows, keys = 64, threads = groups * group_threads,
                       blocks = D == 64 ? 3 : 2;
  static constexpr Size dy = SwizzledTile<T, D, queries>::bytes, tile = SwizzledTile<T, D, keys>::bytes, k = 2 * dy,
                        v = k + 3 * tile, bytes = v + 2 * tile + swizzled_slack;
};

template <class T, int D>
__device__ inline void group_queries(const AttentionUpstream<T>& from, const HeadsOf<T>& dq, const float* own_of,
                                     Size tiles) {
  using At = GroupQueries<T, D>;
  using Keys = SwizzledTile<T, D, At::keys>;
  const auto& at = from.of.at;
  const FlashBlock block(tiles, at.heads);
  const Size first_query = (tiles - 1 - block.tile) * At::queries, kv_head = block.head / at.group();
  const int own = static_cast<int>(threadIdx.x / group_threads) * group_rows;  // of this warpgroup, in the tile
  const auto q = swizzled_part<T, D, At::queries>(0), dy = swizzled_part<T, D, At::queries>(At::dy);
  const auto k = [&](int tile) { return swizzled_part<T, D, At::keys>(At::k + tile % 3 * At::tile); };
  const auto v = [&](int tile) { return swizzled_part<T, D, At::keys>(At::v + tile % 2 * At::tile); };

  const SeenKeys seen = from.of.seen(block.sample);
  const FlashSpan of_block = span_of(seen, first_query, At::queries);
  const int first_key = of_block.from / At::keys * At::keys;
  const int count = of_block.by > first_key ? (of_block.by - first_key + At::keys - 1) / At::keys : 0;
  const auto copy = [&](int tile) {
    const auto rows = [&](const Keys& to, const HeadsOf<const T>& heads) {
      copy_rows<At::threads>(to, heads, at, block.sample, kv_head, first_key + tile * At::keys);
    };
    rows(k(tile), from.of.k);
    rows(v(tile), from.of.v);
    __pipeline_commit();
  };

  FlashQuery queries[2];
  DSPP_UNROLL
  for (int half = 0; half < 2; ++half)
    queries[half] =
        flash_query(from, own_of, seen, block.sample, block.head, first_query + own + row_of_thread() + 8 * half);
  const auto own_of_sum = [&](int i) { return queries[half_of_sum(i)].own; };
  const Cap cap(from.of);
  GroupSums<D> sums;
  GroupSums<At::keys> s, dyv;
  GroupOperand<At::keys> ds;
  zero_sums(sums);
  const auto wait_for_tiles = [&] {
    __pipeline_wait_prior(0);
    fence_shared();
    __syncthreads();  // they are there, and what the next copies replace has been read
  };
  const auto multiply_scores = [&](int tile) {
    multiply_rows<Sum::anew>(s, q, own, k(tile));
    end_products();
    multiply_rows<Sum::anew>(dyv, dy, own, v(tile));
    end_products();
  };
  const auto take_probabilities = [&](int tile) {
    const int key = first_key + tile * At::keys;
    const bool is_whole = queries[0].keys.from <= key && queries[1].keys.from <= key &&
                          queries[0].keys.by >= key + At::keys && queries[1].keys.by >= key + At::keys;
    group_probabilities<T>(
        s, cap, is_whole, [&](int i) { return queries[half_of_sum(i)].log2_sum_exp; },
        [&](int i) { return queries[half_of_sum(i)].keys; }, [&](int i) { return key + column_of_sum(i); });
    __syncwarp();  // is_whole may differ between lanes, which wait for products together
  };
  copy_rows<At::threads>(q, from.of.q, at, block.sample, block.head, first_query);
  copy_rows<At::threads>(dy, from.dy, at, block.sample, block.head, first_query);
  if (count > 0) copy(0);
  __pipeline_commit();
  wait_for_tiles();
  if (count > 0) {
    begin_products(s, dyv);
    multiply_scores(0);
    if (count > 1) copy(1);
    wait_for_products<1>(s);
    take_probabilities(0);
    wait_for_products<0>(dyv);
    ds = group_gradients<T>(s, dyv, own_of_sum);
    for (int tile = 1; tile < count; ++tile) {
      wait_for_tiles();
      begin_products(s, dyv, sums, ds);
      multiply_scores(tile);
      multiply_operand<Sum::on>(sums, ds, k(tile - 1));
      end_products();
      if (tile + 1 < count) copy(tile + 1);
      wait_for_products<2>(s);
      take_probabilities(tile);
      wait_for_products<0>(dyv, sums, ds);
      ds = group_gradients<T>(s, dyv, own_of_sum);
    }
    begin_products(sums, ds);
    multiply_operand<Sum::on>(sums, ds, k(count - 1));
    end_products();
    wait_for_products<0>(sums, ds);
  }
  __syncthreads();  // q has been read, and dq may take its place
  store_group(dq, at, block.sample, block.head, first_query + own, q, own, sums, {from.of.scale, from.of.scale});
}

template <class T, int D>
__global__ void __launch_bounds__(GroupQueries<T, D>::threads, (GroupQueries<T, D>::blocks))
    group_queries_kernel(AttentionUpstream<T> from, HeadsOf<T> dq, const float* own, Size tiles) {
  if constexpr (has_warpgroups) group_queries<T, D>(from, dq, own, tiles);
}

// ---- dk, dv ---------------------------------------------------------------------------------------------------------

/// What two tiles of queries need of each query, in shared memory.
template <int Queries>
struct GroupQueryRows {
  float log_sum_exp[2][Queries], own[2][Queries];
  FlashSpan keys[2][Queries];
};

template <class T, int D>
struct GroupKeys {
  static constexpr int groups = D == 64 ? 1 : 2, keys = groups * group_rows, queries = 64,
                       threads = groups * group_threads, blocks = D == 64 ? 3 : 1;
  static constexpr Size v = SwizzledTile<T, D, keys>::bytes, tile = SwizzledTile<T, D, queries>::bytes, q = 2 * v,
                        dy = q + 2 * tile, rows = dy + 2 * tile,
                        bytes = rows + Size{sizeof(GroupQueryRows<queries>)} + swizzled_slack;
};

template <class T, int D>
__device__ inline void group_keys(const AttentionUpstream<T>& from, const HeadsOf<T>& dk, const HeadsOf<T>& dv,
                                  const float* own_of, Size tiles) {
  using At = GroupKeys<T, D>;
  const auto& at = from.of.at;
  const FlashBlock block(tiles, at.kv_heads);
  const int first_key = static_cast<int>(block.tile) * At::keys;
  const int own = static_cast<int>(threadIdx.x / group_threads) * group_rows;  // of this warpgroup, in the tile
  const auto k = swizzled_part<T, D, At::keys>(0), v = swizzled_part<T, D, At::keys>(At::v);
  const auto q = [&](int step) { return swizzled_part<T, D, At::queries>(At::q + step % 2 * At::tile); };
  const auto dy = [&](int step) { return swizzled_part<T, D, At::queries>(At::dy + step % 2 * At::tile); };
  auto& rows = *reinterpret_cast<GroupQueryRows<At::queries>*>(swizzled_part<T, D, 8>(At::rows).begin);

  // The tiles of queries, those of each query head after another.
  const SeenKeys seen = from.of.seen(block.sample);
  const Size first = first_query_where(seen, [&](Size i) { return seen.by(i) > first_key; });
  const Size end = first_query_where(seen, [&](Size i) { return seen.from(i) >= first_key + At::keys; });
  const int first_tile = static_cast<int>(first / At::queries),
            count = static_cast<int>((end + At::queries - 1) / At::queries) - first_tile,
            steps = first < end ? count * static_cast<int>(at.group()) : 0;
  const auto copy = [&](int step) {
    const Size head = block.head * at.group() + step / count, query = Size{first_tile + step % count} * At::queries;
    copy_rows<At::threads>(q(step), from.of.q, at, block.sample, head, query);
    copy_rows<At::threads>(dy(step), from.dy, at, block.sample, head, query);
    const int i = static_cast<int>(threadIdx.x), set = step % 2;
    if (i < At::queries) {
      const Size row = (block.sample * at.heads + head) * at.sequence + query + i;
      const bool is_there = query + i < at.sequence;
      copy_float_async(&rows.log_sum_exp[set][i], from.log_sum_exp + row, is_there);
      copy_float_async(&rows.own[set][i], own_of + row, is_there);
      rows.keys[set][i] = span_of(seen, query + i, 1);
    }
    __pipeline_commit();
  };

  const Cap cap(from.of);
  GroupSums<D> sums_k, sums_v;
  GroupSums<At::queries> s, dyv;
  GroupOperand<At::queries> p, ds;
  zero_sums(sums_k);
  zero_sums(sums_v);
  copy_rows<At::threads>(k, from.of.k, at, block.sample, block.head, first_key);
  copy_rows<At::threads>(v, from.of.v, at, block.sample, block.head, first_key);
  if (steps > 0) copy(0);
  __pipeline_commit();
  for (int step = 0; step < steps; ++step) {
    __pipeline_wait_prior(0);
    fence_shared();
    __syncthreads();  // this step's tiles are there, and the last ones have been read
    begin_products(s, dyv);
    multiply_rows<Sum::anew>(s, k, own, q(step));
    end_products();
    multiply_rows<Sum::anew>(dyv, v, own, dy(step));
    end_products();
    if (step + 1 < steps) copy(step + 1);
    wait_for_products<1>(s);
    const int set = step % 2, key = first_key + own;
    const FlashSpan* const keys = rows.keys[set];
    // Later queries see no earlier key than these, and none later than those.
    const bool is_whole =
        keys[At::queries - 1].from <= key && keys[0].by >= key + group_rows && keys[At::queries - 1].by > 0;
    p = group_probabilities<T>(
        s, cap, is_whole, [&](int i) { return rows.log_sum_exp[set][column_of_sum(i)] * log2_e; },
        [&](int i) { return keys[column_of_sum(i)]; },
        [&](int i) { return key + row_of_thread() + 8 * half_of_sum(i); });
    begin_products(sums_v, p);
    multiply_operand<Sum::on>(sums_v, p, dy(step));
    end_products();
    wait_for_products<1>(dyv);
    ds = group_gradients<T>(s, dyv, [&](int i) { return rows.own[set][column_of_sum(i)]; });
    begin_products(sums_k, ds);
    multiply_operand<Sum::on>(sums_k, ds, q(step));
    end_products();
    wait_for_products<0>(sums_v, sums_k, p, ds);
  }
  __pipeline_wait_prior(0);
  __syncthreads();  // also without queries: the copies of k and v have ended, and dk and dv may take their place
  store_group(dk, at, block.sample, block.head, first_key + own, k, own, sums_k, {from.of.scale, from.of.scale});
  store_group(dv, at, block.sample, block.head, first_key + own, v, own, sums_v, {1, 1});
}

template <class T, int D>
__global__ void __launch_bounds__(GroupKeys<T, D>::threads, (GroupKeys<T, D>::blocks))
    group_keys_kernel(AttentionUpstream<T> from, HeadsOf<T> dk, HeadsOf<T> dv, const float* own, Size tiles) {
  if constexpr (has_warpgroups) group_keys<T, D>(from, dk, dv, own, tiles);
}

// ---- launches -------------------------------------------------------------------------------------------------------

/// Where group_takes(of, y, dy, dq, dk, dv). `own`: f32 [batch, heads, sequence], of no use afterwards.
template <class T>
void group_attention_backward(cudaStream_t stream, const AttentionUpstream<T>& from, HeadsOf<T> dq, HeadsOf<T> dk,
                              HeadsOf<T> dv, float* own) {
  const auto& at = from.of.at;
  const Size rows = at.batch * at.heads * at.sequence;
  const Work work{"group_attention_backward", rows, at.head_dim};
  launch(work, flash_own_kernel<T>, blocks_for(rows, own_threads / own_lanes), {own_threads}, stream, at, from.y,
         from.dy, own);
  with_tile_columns(at.head_dim, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    using Queries = GroupQueries<T, D>;
    using Keys = GroupKeys<T, D>;
    const Size query_tiles = blocks_for(at.sequence, Queries::queries), key_tiles = blocks_for(at.sequence, Keys::keys);
    launch(work, group_queries_kernel<T, D>, at.batch * at.heads * query_tiles, {Queries::threads, 1, Queries::bytes},
           stream, from, dq, own, query_tiles);
    launch(work, group_keys_kernel<T, D>, at.batch * at.kv_heads * key_tiles, {Keys::threads, 1, Keys::bytes}, stream,
           from, dk, dv, own, key_tiles);
  });
}

}  // namespace dspp::gpu
