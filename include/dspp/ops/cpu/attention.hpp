// SPDX-License-Identifier: Apache-2.0
/// Attention on the Cpu in tiles of queries x keys: sequence x sequence is never in memory.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// The ranges of keys by lengths and documents. On the calling thread.
template <>
struct Kernel<kernels::KeyRanges, Cpu> {
  static void run(Size batch, Size sequence, Size keys, const std::int32_t* lengths, const std::int32_t* documents,
                  std::int32_t* ranges) {
    for (Size b = 0; b < batch; ++b, ranges += 2 * sequence) {
      const Size length = lengths == nullptr ? keys : lengths[b];
      const std::int32_t* ids = documents == nullptr ? nullptr : documents + b * sequence;
      for (Size begin = 0, end = 0; begin < sequence; begin = end) {
        do ++end;
        while (end < sequence && (ids == nullptr || ids[end] == ids[begin]));
        for (Size i = begin; i < end; ++i) {
          ranges[2 * i] = static_cast<std::int32_t>(begin);
          ranges[2 * i + 1] = static_cast<std::int32_t>(ids != nullptr && end < length ? end : length);
        }
      }
    }
  }
};

/// Parallel over (batch, head), of the gradients over heads if there is one of a bias.
template <class T>
struct Kernel<kernels::Attention<T>, Cpu> {
  static void run(const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras, const T* qkv, T* y,
                  Compute<T>* log_sum_exp);
};
template <class T>
struct Kernel<kernels::AttentionVjp<T>, Cpu> {
  static void run(const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras, const T* qkv,
                  const T* y, const Compute<T>* log_sum_exp, const T* dy, T* dqkv, Compute<T>* dq_sum,
                  Compute<T>* dbias);
};

/// Parallel over (batch, query head).
template <class T>
struct Kernel<kernels::GroupedAttention<T>, Cpu> {
  static void run(const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras, const T* q,
                  const T* kv, T* y, Compute<T>* log_sum_exp);
};
/// Parallel over (batch, key and value head), whose query heads are summed in order: the bits depend neither on threads
/// nor on how heads are split over ranks.
template <class T>
struct Kernel<kernels::GroupedAttentionVjp<T>, Cpu> {
  static void run(const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras, const T* q,
                  const T* kv, const T* y, const Compute<T>* log_sum_exp, const T* dy, T* dq, T* dkv,
                  Compute<T>* dq_sum, Compute<T>* dbias);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <cmath>

#include <dspp/ops/cpu/attention_tiles.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

/// y = softmax(scores) v of one head, and each row's log of the sum of exponentials. The scores are those of the rule,
/// plus bias [queries, keys] unless it is null.
///
/// Cost     4 queries keys head_dim operations, half of that when causal (tiles that no query sees are left out);
///          on the calling thread, under OneThread
/// Memory   scratch of at most a quarter of a MiB at head_dim 64, whatever the sequence
/// Source   Dao et al. 2022, FlashAttention, algorithm 1; Milakov and Gimelshein 2018 for the running softmax
template <class T>
void attention_head(const HeadExtents& extents, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                    HeadRows<T> y, Compute<T>* log_sum_exp, const T* bias = nullptr);

/// What attention_head_vjp reads and writes. dq is summed over tiles of keys, hence in the computing type: for f64 and
/// f32 in its final place. Several query heads may share one head of keys and values, whose gradients are then sums.
template <class T>
struct AttentionGradients {
  HeadRows<const T> q, k, v, y, dy;
  const Compute<T>* log_sum_exp = nullptr;
  HeadRows<Compute<T>> dq;
  HeadRows<T> dk, dv;
  Size query_heads = 1;     ///< q, y and dy hold them side by side, log_sum_exp one after another
  Size dq_step = 0;         ///< elements from one query head's dq to the next one's
  const T* bias = nullptr;  ///< [query heads, queries, keys], as dbias, or null
  Compute<T>* dbias = nullptr;
  Compute<T>* y_dy = nullptr;  ///< the sum of a query's y dy, as log_sum_exp: attention_head_vjp's own

  /// The gradients of query head h alone.
  AttentionGradients query_head(const HeadExtents& extents, Size h) const {
    const Size columns = h * extents.head_dim;
    AttentionGradients one = *this;
    one.q.data += columns, one.y.data += columns, one.dy.data += columns;
    one.log_sum_exp += h * extents.queries;
    one.y_dy += h * extents.queries;
    one.dq.data += h * dq_step;
    if (bias != nullptr) one.bias += h * extents.queries * extents.keys;
    if (dbias != nullptr) one.dbias += h * extents.queries * extents.keys;
    return one;
  }
};

/// The gradients of attention_head for its inputs; the softmax is recomputed.
///
/// Cost     10 queries keys head_dim operations a query head, half of that when causal
/// Memory   scratch of at most a quarter of a MiB at head_dim 64, and a number for each query of each query head
/// Source   Dao et al. 2022, algorithm 4
template <class T>
void attention_head_vjp(const HeadExtents& extents, AttentionGradients<T> at);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The addresses of the heads of kernels::AttentionExtents. Head i is of batch * heads, or of batch * kv_heads.
struct HeadsAt : kernels::AttentionExtents {
  explicit HeadsAt(const kernels::AttentionExtents& extents) : kernels::AttentionExtents(extents) {}

  /// Of a sample, with its part of AttentionExtras::ranges.
  template <class T>
  HeadExtents head(Size sample, const kernels::AttentionExtras<T>& extras) const {
    return {sequence, keys(), head_dim, rule,
            extras.ranges == nullptr ? nullptr : extras.ranges + sample * sequence * 2};
  }
  /// [sequence, keys] of query head i of batch * heads, of a bias or its gradient.
  template <class T>
  T* of_head(T* bias, Size i) const {
    return bias == nullptr ? nullptr : bias + i % heads * sequence * keys();
  }
  /// f(i) for i in [0, batch * count), in parallel; over count alone if the samples add to one sum.
  template <class F>
  void each(Size count, bool add, F f) const {
    const Size together = add ? batch : 1;
    parallel_for(batch * count / std::max<Size>(together, 1), 1, [&](Size i, Size) {
      const OneThread inside_providers;
      for (Size b = 0; b < together; ++b) f(i + b * count);
    });
  }
  /// part 0, 1, 2 of qkv is q, k, v.
  template <class T>
  HeadRows<T> fused(T* qkv, Size i, int part) const {
    return {qkv + i / heads * sequence * 3 * width() + part * width() + i % heads * head_dim, 3 * width()};
  }
  template <class T>
  HeadRows<T> plain(T* y, Size i) const {
    return {y + i / heads * sequence * width() + i % heads * head_dim, width()};
  }
  /// part 0, 1 of kv is k, v.
  template <class T>
  HeadRows<T> key_value(T* kv, Size i, int part) const {
    const Size head = i % kv_heads * head_dim;
    return {kv + i / kv_heads * keys() * 2 * kv_width() + part * kv_width() + head, 2 * kv_width()};
  }
};

/// One tile of queries against one tile of keys after another.
template <class T>
struct AttentionForward {
  using C = Compute<T>;
  static constexpr Size tile = attention_tile.queries, keys = attention_tile.keys, stride = keys + tile_padding;
  static constexpr Size scratch_count(Size d) {
    return tile * (stride + 2) + (copies_rows<T> ? 2 * (tile + keys) : tile) * d;
  }

  AttentionForward(const HeadExtents& head, const T* head_bias, Size first, C* room)
      : extents(head),
        bias(head_bias),
        first_query(first),
        rows(std::min(tile, head.queries - first)),
        d(head.head_dim),
        scale(head.scale<C>()),
        scores{room, stride},
        maximum(room + tile * stride),
        sum(maximum + tile),
        sum_v(sum + tile),
        convert_room(sum_v + tile * d) {
    std::fill_n(maximum, rows, -std::numeric_limits<C>::infinity());
    std::fill_n(sum, rows, C(0));
  }

  /// Adds the keys [j, j + columns) to the running softmax and to sum_v, by factors exp(old maximum - new maximum).
  void add(HeadRows<const C> q, HeadRows<const C> k, HeadRows<const C> v, Size j, Size columns, Write write) {
    multiply_tiles<C>(rows, columns, d, q, Transpose::no, k, Transpose::yes, scores, Write::overwrite);
    for (Size i = 0; i < rows; ++i) add_row_of_scores(i, j, columns);
    multiply_tiles<C>(rows, d, columns, scores, Transpose::no, v, Transpose::no, {sum_v, d}, write);
  }

  void add_row_of_scores(Size i, Size j, Size columns) {
    constexpr C nothing = -std::numeric_limits<C>::infinity();
    C* row = scores[i];
    const KeyRange seen = extents.seen_of(first_query + i, j, columns), blocks = blocks_of(seen);
    if (seen.begin == seen.end) return fill_unseen(row, 0, columns, C(0));
    C factor = scale;
    if (bias != nullptr || extents.rule.softcap > 0) {
      const T* beside = bias == nullptr ? nullptr : bias + (first_query + i) * extents.keys + j;
      adjust_scores(row, seen, scale, static_cast<C>(extents.rule.softcap), beside);
      factor = 1;
    }
    fill_unseen(row, 0, blocks.begin, C(0));
    fill_unseen(row, blocks.begin, seen.begin, nothing);
    fill_unseen(row, seen.end, blocks.end, nothing);
    fill_unseen(row, blocks.end, columns, C(0));
    const C before = maximum[i];
    maximum[i] = std::max(largest_of(row + blocks.begin, blocks.end - blocks.begin) * factor, before);
    const C shift = maximum[i] == nothing ? C(0) : maximum[i];  // scores of -infinity and NaN, which stay 0 and NaN
    const C row_sum = exponentials(row + blocks.begin, blocks.end - blocks.begin, factor, shift);
    if (before == nothing || maximum[i] == before) {
      sum[i] += row_sum;
    } else {
      const C shrink = math::exp(before - maximum[i]);
      sum[i] = sum[i] * shrink + row_sum;
      map_row(sum_v + i * d, d, sum_v + i * d, [shrink](C a) { return a * shrink; });
    }
  }

  void finish(HeadRows<T> y, C* log_sum_exp) const {
    for (Size i = 0; i < rows; ++i) {
      if (sum[i] == 0) {  // no key
        std::fill_n(y[first_query + i], d, T{});
        log_sum_exp[first_query + i] = std::numeric_limits<C>::infinity();
        continue;
      }
      const C factor = C(1) / sum[i];
      map_row(sum_v + i * d, d, y[first_query + i], [factor](C a) { return a * factor; });
      log_sum_exp[first_query + i] = maximum[i] + math::log(sum[i]);
    }
  }

  HeadExtents extents;
  const T* bias;
  Size first_query, rows, d;
  C scale;
  HeadRows<C> scores;
  C *maximum, *sum, *sum_v, *convert_room;
};

/// One tile of keys against one tile of queries after another.
template <class T>
struct AttentionBackward {
  using C = Compute<T>;
  static constexpr Size tile = attention_tile.vjp_queries, keys = attention_tile.vjp_keys,
                        stride = round_up(keys, block_length) + tile_padding;
  static constexpr bool converts = !std::is_same_v<T, C>;
  static constexpr Size scratch_count(Size d) {
    return 2 * tile * stride + (copies_rows<T> ? 2 * (tile + (converts ? 2 : 1) * keys) : 0) * d;
  }

  AttentionBackward(const HeadExtents& head, const AttentionGradients<T>& gradients, const KeyRange& range, C* room)
      : extents(head),
        first_key(range.begin),
        columns(range.end - range.begin),
        d(head.head_dim),
        scale(head.scale<C>()),
        scores{room, stride},
        dscores{room + tile * stride, stride},
        q_room(room + 2 * tile * stride),
        k(tile_rows(gradients.k, first_key, columns, d, q_room + 2 * tile * d, true)),
        v(tile_rows(gradients.v, first_key, columns, d, q_room + (2 * tile + keys) * d)) {
    if constexpr (converts) {
      dk = {q_room + 2 * (tile + keys) * d, d};
      dv = {dk[keys], d};
    } else {
      dk = {gradients.dk[first_key], gradients.dk.stride};
      dv = {gradients.dv[first_key], gradients.dv.stride};
    }
  }

  /// Adds what the queries [i, i + rows) of one query head, which see keys before `end`, contribute to dk and dv, and
  /// these keys to its dq.
  void add(const AttentionGradients<T>& at, Size i, Size rows, Size end, bool first_use) {
    using enum Transpose;
    const Size n = std::min(columns, end - first_key);  // none of the others is seen
    const Write keys_write = first_use ? Write::overwrite : Write::accumulate;
    if (first_use)
      for (const HeadRows<C>& sums : {dk, dv}) zero_rows(sums, {n, columns}, d);
    const HeadRows<const C> q = tile_rows(at.q, i, rows, d, q_room, true),
                            dy = tile_rows(at.dy, i, rows, d, q_room + tile * d, true);
    multiply_tiles<C>(rows, n, d, q, no, k, yes, scores, Write::overwrite);
    multiply_tiles<C>(rows, n, d, dy, no, v, yes, dscores, Write::overwrite);
    for (Size row = 0; row < rows; ++row) add_row_of_gradients(at, i + row, n, scores[row], dscores[row]);
    multiply_tiles<C>(n, d, rows, scores, yes, dy, no, dv, keys_write);
    multiply_tiles<C>(n, d, rows, dscores, yes, q, no, dk, keys_write);
    multiply_tiles<C>(rows, d, n, dscores, no, k, no, {at.dq[i], at.dq.stride},
                      first_key <= extents.seen_from(i) ? Write::overwrite : Write::accumulate);
  }

  void add_row_of_gradients(const AttentionGradients<T>& at, Size i, Size n, C* p, C* dp) const {
    const KeyRange seen = extents.seen_of(i, first_key, n);
    if (seen.begin < seen.end) {
      const C dot = at.y_dy[i];
      if (at.bias == nullptr && !(extents.rule.softcap > 0)) {
        const KeyRange blocks = blocks_of(seen);
        score_gradients(p + blocks.begin, dp + blocks.begin, blocks.end - blocks.begin, scale, at.log_sum_exp[i], dot);
      } else {
        const Size place = i * extents.keys + first_key;
        adjusted_score_gradients(p, dp, seen, scale, static_cast<C>(extents.rule.softcap),
                                 at.bias == nullptr ? nullptr : at.bias + place, at.log_sum_exp[i], dot,
                                 at.dbias == nullptr ? nullptr : at.dbias + place);
      }
    }
    for (C* row : {p, dp}) {
      fill_unseen(row, 0, seen.begin, C(0));
      fill_unseen(row, seen.end, n, C(0));
    }
  }

  void finish(const AttentionGradients<T>& at) const {
    if constexpr (converts)
      for (Size j = 0; j < columns; ++j) {
        convert_row(dk[j], d, at.dk[first_key + j]);
        convert_row(dv[j], d, at.dv[first_key + j]);
      }
  }

  HeadExtents extents;
  Size first_key, columns, d;
  C scale;
  HeadRows<C> scores, dscores;
  C* q_room;
  HeadRows<const C> k, v;
  HeadRows<C> dk, dv;
};

}  // namespace detail

template <class T>
void attention_head(const HeadExtents& extents, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                    HeadRows<T> y, Compute<T>* log_sum_exp, const T* bias) {
  using Tile = detail::AttentionForward<T>;
  const Size d = extents.head_dim;
  const Scratch<Compute<T>> room(Tile::scratch_count(d));
  for (Size i = 0; i < extents.queries; i += Tile::tile) {
    Tile tile(extents, bias, i, room.data());
    const auto q_tile = detail::tile_rows(q, i, tile.rows, d, tile.convert_room);
    auto* k_room = tile.convert_room + Tile::tile * d;
    const KeyRange seen = extents.seen_by_rows(i, tile.rows);
    for (Size j = seen.begin; j < seen.end; j += Tile::keys) {
      const Size columns = std::min(Tile::keys, seen.end - j);
      tile.add(q_tile, detail::tile_rows(k, j, columns, d, k_room),
               detail::tile_rows(v, j, columns, d, k_room + Tile::keys * d, true), j, columns,
               j == seen.begin ? Write::overwrite : Write::accumulate);
    }
    tile.finish(y, log_sum_exp);
  }
}

namespace detail {

/// Before the tiles of one query head: y_dy, and dq of the queries that see no key.
template <class T>
void begin_query_head(const HeadExtents& extents, const AttentionGradients<T>& at) {
  constexpr Size tile = attention_tile.vjp_queries;
  for (Size i = 0; i < extents.queries; ++i) at.y_dy[i] = dot_row(at.y[i], at.dy[i], extents.head_dim);
  for (Size i = 0; i < extents.queries; i += tile) {
    const Size rows = std::min(tile, extents.queries - i);
    const KeyRange seen = extents.seen_by_rows(i, rows);
    if (seen.begin == seen.end) zero_rows(at.dq, {i, i + rows}, extents.head_dim);
  }
}

}  // namespace detail

template <class T>
void attention_head_vjp(const HeadExtents& extents, AttentionGradients<T> at) {
  using Tile = detail::AttentionBackward<T>;
  const Size tile_count = Tile::scratch_count(extents.head_dim);
  const Scratch<Compute<T>> room(tile_count + at.query_heads * extents.queries);
  at.y_dy = room.data() + tile_count;
  for (Size h = 0; h < at.query_heads; ++h) detail::begin_query_head(extents, at.query_head(extents, h));
  const Size end = extents.queries > 0 ? extents.seen_by(extents.queries - 1) : 0;  // the keys after it have no query
  for (Size j = 0; j < end; j += Tile::keys) {
    const KeyRange range{j, std::min(j + Tile::keys, end)};
    Tile tile(extents, at, range, room.data());
    bool first_use = true;
    for (Size h = 0; h < at.query_heads; ++h) {
      const AttentionGradients<T> head = at.query_head(extents, h);
      for (Size i = 0; i < extents.queries; i += Tile::tile) {
        const Size rows = std::min(Tile::tile, extents.queries - i);
        const KeyRange seen = extents.seen_by_rows(i, rows);
        if (seen.begin == seen.end || seen.end <= j || seen.begin >= j + tile.columns) continue;
        tile.add(head, i, rows, seen.end, first_use);
        first_use = false;
      }
    }
    if (first_use) {
      detail::zero_rows(at.dk, range, extents.head_dim);
      detail::zero_rows(at.dv, range, extents.head_dim);
    } else {
      tile.finish(at);
    }
  }
  detail::zero_rows(at.dk, {end, extents.keys}, extents.head_dim);
  detail::zero_rows(at.dv, {end, extents.keys}, extents.head_dim);
}

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::Attention<T>, Cpu>::run(const kernels::AttentionExtents& extents,
                                             const kernels::AttentionExtras<T>& extras, const T* qkv, T* y,
                                             Compute<T>* log_sum_exp) {
  const cpu::detail::HeadsAt at(extents);
  at.each(at.heads, false, [&](Size i) {
    cpu::attention_head<T>(at.head(i / at.heads, extras), at.fused(qkv, i, 0), at.fused(qkv, i, 1), at.fused(qkv, i, 2),
                           at.plain(y, i), log_sum_exp + i * at.sequence, at.of_head(extras.bias, i));
  });
}

template <class T>
void Kernel<kernels::AttentionVjp<T>, Cpu>::run(const kernels::AttentionExtents& extents,
                                                const kernels::AttentionExtras<T>& extras, const T* qkv, const T* y,
                                                const Compute<T>* log_sum_exp, const T* dy, T* dqkv, Compute<T>* dq_sum,
                                                Compute<T>* dbias) {
  using C = Compute<T>;
  const cpu::detail::HeadsAt at(extents);
  at.each(at.heads, dbias != nullptr, [&](Size i) {
    cpu::HeadRows<C> dq;
    if constexpr (std::is_same_v<T, C>)
      dq = at.fused(dqkv, i, 0);
    else
      dq = {dq_sum + i * at.sequence * at.head_dim, at.head_dim};
    cpu::attention_head_vjp<T>(at.head(i / at.heads, extras), {.q = at.fused(qkv, i, 0),
                                                               .k = at.fused(qkv, i, 1),
                                                               .v = at.fused(qkv, i, 2),
                                                               .y = at.plain(y, i),
                                                               .dy = at.plain(dy, i),
                                                               .log_sum_exp = log_sum_exp + i * at.sequence,
                                                               .dq = dq,
                                                               .dk = at.fused(dqkv, i, 1),
                                                               .dv = at.fused(dqkv, i, 2),
                                                               .bias = at.of_head(extras.bias, i),
                                                               .dbias = at.of_head(dbias, i)});
    if constexpr (!std::is_same_v<T, C>)
      for (Size row = 0; row < at.sequence; ++row) cpu::convert_row(dq[row], at.head_dim, at.fused(dqkv, i, 0)[row]);
  });
}

template <class T>
void Kernel<kernels::GroupedAttention<T>, Cpu>::run(const kernels::AttentionExtents& extents,
                                                    const kernels::AttentionExtras<T>& extras, const T* q, const T* kv,
                                                    T* y, Compute<T>* log_sum_exp) {
  const cpu::detail::HeadsAt at(extents);
  at.each(at.heads, false, [&](Size i) {
    const Size shared = i / at.group();
    cpu::attention_head<T>(at.head(i / at.heads, extras), at.plain(q, i), at.key_value(kv, shared, 0),
                           at.key_value(kv, shared, 1), at.plain(y, i), log_sum_exp + i * at.sequence,
                           at.of_head(extras.bias, i));
  });
}

template <class T>
void Kernel<kernels::GroupedAttentionVjp<T>, Cpu>::run(const kernels::AttentionExtents& extents,
                                                       const kernels::AttentionExtras<T>& extras, const T* q,
                                                       const T* kv, const T* y, const Compute<T>* log_sum_exp,
                                                       const T* dy, T* dq, T* dkv, Compute<T>* dq_sum,
                                                       Compute<T>* dbias) {
  using C = Compute<T>;
  constexpr bool converts = !std::is_same_v<T, C>;
  const cpu::detail::HeadsAt at(extents);
  const Size sequence = at.sequence, head_dim = at.head_dim;
  at.each(at.kv_heads, dbias != nullptr, [&](Size i) {
    const Size first = i * at.group();  // of the query heads of this group
    cpu::HeadRows<C> sums;
    if constexpr (converts)
      sums = {dq_sum + first * sequence * head_dim, head_dim};
    else
      sums = at.plain(dq, first);
    cpu::attention_head_vjp<T>(at.head(i / at.kv_heads, extras), {.q = at.plain(q, first),
                                                                  .k = at.key_value(kv, i, 0),
                                                                  .v = at.key_value(kv, i, 1),
                                                                  .y = at.plain(y, first),
                                                                  .dy = at.plain(dy, first),
                                                                  .log_sum_exp = log_sum_exp + first * sequence,
                                                                  .dq = sums,
                                                                  .dk = at.key_value(dkv, i, 0),
                                                                  .dv = at.key_value(dkv, i, 1),
                                                                  .query_heads = at.group(),
                                                                  .dq_step = converts ? sequence * head_dim : head_dim,
                                                                  .bias = at.of_head(extras.bias, first),
                                                                  .dbias = at.of_head(dbias, first)});
    if constexpr (converts)
      for (Size h = first; h < first + at.group(); ++h)
        for (Size row = 0; row < sequence; ++row)
          cpu::convert_row(dq_sum + (h * sequence + row) * head_dim, head_dim, at.plain(dq, h)[row]);
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
