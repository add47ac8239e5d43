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

#include <dspp/ops/cpu/attention_gradients.hpp>
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
  static constexpr bool converts = !std::is_same_v<T, C>;  // queries, of which fewer fit then
  static constexpr Size tile = AttentionTile<C>::queries / (converts ? 2 : 1), part = AttentionTile<C>::part,
                        keys = AttentionTile<C>::keys, stride = keys + row_padding<C>;
  static constexpr Size scratch_count(Size d) {
    return part * stride + 2 * tile + ((converts ? 2 : 1) * tile + stride + keys + vector_length<C>)*d;
  }

  AttentionForward(const HeadExtents& head, const T* head_bias, HeadRows<const T> queries, Size first, C* room)
      : extents(head),
        bias(head_bias),
        first_query(first),
        rows(std::min(tile, head.queries - first)),
        d(head.head_dim),
        scale(head.scale<C>()),
        scores{room, stride},
        maximum(room + part * stride),
        sum(maximum + tile),
        sum_v(sum + tile),
        keys_transposed{sum_v + tile * d, stride},
        value_room(keys_transposed[d]),
        convert_room(value_room + keys * d),
        q(query_rows(queries, first, rows, d, convert_room + vector_length<C> * d)) {
    std::fill_n(maximum, rows, -std::numeric_limits<C>::infinity());
    std::fill_n(sum, rows, C(0));
  }

  /// In place where that is possible: a product reads four or six of them at a time, which no cache set holds alone.
  static HeadRows<const C> query_rows(HeadRows<const T> from, Size begin, Size count, Size columns, C* room) {
    if constexpr (converts)
      return tile_rows(from, begin, count, columns, room);
    else
      return {from[begin], from.stride};
  }

  /// Adds the keys [j, j + columns) to the running softmax and to sum_v, by factors exp(old maximum - new maximum).
  void add(HeadRows<const T> k, HeadRows<const T> v, Size j, Size columns, Write write) {
    transpose_tile_rows(k, j, columns, d, keys_transposed, convert_room);
    const HeadRows<const C> values = tile_rows(v, j, columns, d, value_room);
    for (Size i = 0; i < rows; i += part) add_rows(i, std::min(part, rows - i), values, j, columns, write);
  }

  /// The queries [first, first + count) of the tile.
  void add_rows(Size first, Size count, HeadRows<const C> values, Size j, Size columns, Write write) {
    const SeenOfTile<part> seen(extents, first_query + first, count, j, columns);
    const auto keys_of = [&](Size i, Size together) { return seen.keys_of(i, together); };
    multiply_to_ranges<C>(count, columns, d, HeadRows<const C>{q[first], q.stride}, keys_transposed, scores, keys_of);
    Softmax softmax[std::size_t{part}];
    for (Size i = 0; i < count; ++i) softmax[i] = begin_row(first + i, scores[i], j, seen[i], seen.read_of(i));
    for (Size i = 0; i < count; ++i) end_row(first + i, scores[i], softmax[i]);
    multiply_by_rows<C>(count, d, HeadRows<const C>(scores), values, {sum_v + first * d, d}, write == Write::accumulate,
                        keys_of);
  }

  /// A row of scores whose maximum is taken: `before` is that of the keys before these.
  struct Softmax {
    KeyRange blocks;
    C factor = 0, before = 0;
  };

  /// Two loops over rows, so that no row's maximum waits for the exponentials of the row before.
  Softmax begin_row(Size i, C* row, Size j, const KeyRange& seen, const KeyRange& read) {
    constexpr C nothing = -std::numeric_limits<C>::infinity();
    if (seen.begin == seen.end) {
      fill_unseen(row, read.begin, read.end, C(0));
      return {};
    }
    const KeyRange blocks = blocks_of(seen);
    C factor = scale;
    if (bias != nullptr || extents.rule.softcap > 0) {
      const T* beside = bias == nullptr ? nullptr : bias + (first_query + i) * extents.keys + j;
      adjust_scores(row, seen, scale, static_cast<C>(extents.rule.softcap), beside);
      factor = 1;
    }
    fill_unseen(row, read.begin, blocks.begin, C(0));
    fill_unseen(row, blocks.begin, seen.begin, nothing);
    fill_unseen(row, seen.end, blocks.end, nothing);
    fill_unseen(row, blocks.end, read.end, C(0));
    const C before = maximum[i];
    maximum[i] = std::max(largest_of(row + blocks.begin, blocks.end - blocks.begin) * factor, before);
    return {blocks, factor, before};
  }

  void end_row(Size i, C* row, const Softmax& softmax) {
    constexpr C nothing = -std::numeric_limits<C>::infinity();
    const KeyRange& blocks = softmax.blocks;
    if (blocks.begin == blocks.end) return;
    const C shift = maximum[i] == nothing ? C(0) : maximum[i];  // scores of -infinity and NaN, which stay 0 and NaN
    const C row_sum = exponentials(row + blocks.begin, blocks.end - blocks.begin, softmax.factor, shift);
    if (softmax.before == nothing || maximum[i] == softmax.before) {
      sum[i] += row_sum;
    } else {
      const C shrink = math::exp(softmax.before - maximum[i]);
      sum[i] = sum[i] * shrink + row_sum;
      scale_row(sum_v + i * d, d, shrink, sum_v + i * d);
    }
  }

  void finish(HeadRows<T> y, C* log_sum_exp) const {
    for (Size i = 0; i < rows; ++i) {
      if (sum[i] == 0) {  // no key
        std::fill_n(y[first_query + i], d, T{});
        log_sum_exp[first_query + i] = std::numeric_limits<C>::infinity();
        continue;
      }
      scale_row(sum_v + i * d, d, C(1) / sum[i], y[first_query + i]);
      log_sum_exp[first_query + i] = maximum[i] + math::log(sum[i]);
    }
  }

  HeadExtents extents;
  const T* bias;
  Size first_query, rows, d;
  C scale;
  HeadRows<C> scores;
  C *maximum, *sum, *sum_v;
  HeadRows<C> keys_transposed;
  C *value_room, *convert_room;
  HeadRows<const C> q;
};

}  // namespace detail

template <class T>
void attention_head(const HeadExtents& extents, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                    HeadRows<T> y, Compute<T>* log_sum_exp, const T* bias) {
  using Tile = detail::AttentionForward<T>;
  const Size d = extents.head_dim;
  const Scratch<Compute<T>> room(Tile::scratch_count(d));
  for (Size i = 0; i < extents.queries; i += Tile::tile) {
    Tile tile(extents, bias, q, i, room.data());
    const KeyRange seen = extents.seen_by_rows(i, tile.rows);
    for (Size j = seen.begin; j < seen.end; j += Tile::keys)
      tile.add(k, v, j, std::min(Tile::keys, seen.end - j), j == seen.begin ? Write::overwrite : Write::accumulate);
    tile.finish(y, log_sum_exp);
  }
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
