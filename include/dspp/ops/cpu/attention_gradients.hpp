// SPDX-License-Identifier: Apache-2.0
/// The gradients of one head of attention, tile by tile.
#pragma once

#include <dspp/ops/cpu/attention_tiles.hpp>

namespace dspp::cpu {

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

/// One tile of keys against one tile of queries after another.
template <class T>
struct AttentionBackward {
  using C = Compute<T>;
  static constexpr Size tile = AttentionTile<C>::vjp_queries, part = AttentionTile<C>::part,
                        keys = AttentionTile<C>::vjp_keys, stride = round_up(keys, block_length) + row_padding<C>;
  static constexpr bool converts = !std::is_same_v<T, C>;
  static constexpr Size scratch_count(Size d) {
    return 2 * tile * stride + (2 * tile + 2 * stride + (converts ? 3 : 1) * keys + vector_length<C>)*d;
  }

  AttentionBackward(const HeadExtents& head, const AttentionGradients<T>& gradients, const KeyRange& range, C* room)
      : extents(head),
        first_key(range.begin),
        columns(range.end - range.begin),
        d(head.head_dim),
        scale(head.scale<C>()),
        scores{room, stride},
        dscores{room + tile * stride, stride},
        keys_transposed{room + 2 * tile * stride, stride},
        values_transposed{keys_transposed[d], stride},
        q_room(values_transposed[d]),
        k(tile_rows(gradients.k, first_key, columns, d, q_room + 2 * tile * d)) {
    C* const rest = q_room + (2 * tile + keys) * d;
    transpose_tile_rows(gradients.k, first_key, columns, d, keys_transposed, rest);
    transpose_tile_rows(gradients.v, first_key, columns, d, values_transposed, rest);
    if constexpr (converts) {
      dk = {rest + vector_length<C> * d, d};
      dv = {dk[keys], d};
    } else {
      dk = {gradients.dk[first_key], gradients.dk.stride};
      dv = {gradients.dv[first_key], gradients.dv.stride};
    }
  }

  /// Adds what the queries [i, i + rows) of one query head, which see keys before `end`, contribute to dk and dv, and
  /// these keys to its dq.
  void add(const AttentionGradients<T>& at, Size i, Size rows, Size end, bool first_use) {
    const Size n = std::min(columns, end - first_key);  // none of the others is seen
    if (first_use)
      for (const HeadRows<C>& sums : {dk, dv}) zero_rows(sums, {n, columns}, d);
    const HeadRows<const C> q = tile_rows(at.q, i, rows, d, q_room),
                            dy = tile_rows(at.dy, i, rows, d, q_room + tile * d);
    const SeenOfTile<tile> seen(extents, i, rows, first_key, n);
    const auto keys_of = [&](Size row, Size count) { return seen.keys_of(row, count); };
    const SeeingOfTile<tile, keys> seeing(seen);
    const auto queries_of = [&](Size key, Size) { return seeing.queries_of(key); };
    for (Size first = 0; first < rows; first += part) {
      const Size count = std::min(part, rows - first);
      const auto keys_of_part = [&](Size row, Size together) { return seen.keys_of(first + row, together); };
      const auto from = [first](HeadRows<const C> x) { return HeadRows<const C>{x[first], x.stride}; };
      multiply_to_ranges<C>(count, n, d, from(q), keys_transposed, {scores[first], stride}, keys_of_part);
      multiply_to_ranges<C>(count, n, d, from(dy), values_transposed, {dscores[first], stride}, keys_of_part);
      for (Size row = first; row < first + count; ++row) {
        prefetch_row(at.q, i + rows + row, extents.queries, d), prefetch_row(at.dy, i + rows + row, extents.queries, d);
        add_row_of_gradients(at, i + row, seen[row], seen.read_of(row), scores[row], dscores[row]);
      }
    }
    multiply_by_rows<C>(n, d, LeftTile<C>::transposed(scores), dy, dv, !first_use, queries_of);
    multiply_by_rows<C>(n, d, LeftTile<C>::transposed(dscores), q, dk, !first_use, queries_of);
    multiply_by_rows<C>(rows, d, HeadRows<const C>(dscores), k, {at.dq[i], at.dq.stride},
                        first_key > extents.seen_from(i), keys_of);
  }

  void add_row_of_gradients(const AttentionGradients<T>& at, Size i, const KeyRange& seen, const KeyRange& read, C* p,
                            C* dp) const {
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
      fill_unseen(row, read.begin, seen.begin, C(0));
      fill_unseen(row, seen.end, read.end, C(0));
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
  HeadRows<C> scores, dscores, keys_transposed, values_transposed;
  C* q_room;
  HeadRows<const C> k;
  HeadRows<C> dk, dv;
};

/// Before the tiles of one query head: y_dy, and dq of the queries that see no key.
template <class T>
void begin_query_head(const HeadExtents& extents, const AttentionGradients<T>& at) {
  constexpr Size tile = AttentionTile<Compute<T>>::vjp_queries;
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
