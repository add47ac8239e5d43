// SPDX-License-Identifier: Apache-2.0
/// Parts of attention's forward and backward: heads as strided rows, tiles, and the softmax of a tile's rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <dspp/base/math.hpp>
#include <dspp/ops/cpu/gemm/rows.hpp>
#include <dspp/ops/cpu/scratch.hpp>
#include <dspp/ops/cpu/tile_products.hpp>
#include <dspp/ops/seen_keys.hpp>

namespace dspp::cpu {

/// Queries and keys of a tile, forward and backward, as many as a quarter of a MiB holds at head_dim 64: each tile of
/// queries reads and copies its keys again, backward each tile of keys its queries. The scores of `part` queries, 39
/// KiB, are in cache when they are read.
template <class C>
struct AttentionTile {
  static constexpr Size unit = 96 * sizeof(float) / sizeof(C);
  static constexpr Size queries = 4 * unit, part = unit / 2, keys = 2 * unit, vjp_queries = part,
                        vjp_keys = unit * 4 / 3;
  static_assert(part % product_rows == 0 && keys % block_length == 0 && vjp_keys % block_length == 0);
};

/// The extents of one head. Causal needs keys >= queries: the last query attends to the last key.
struct HeadExtents {
  Size queries = 0, keys = 0, head_dim = 0;
  AttentionRule rule{};
  const std::int32_t* ranges = nullptr;  ///< of the sample, see kernels::AttentionExtras

  /// Query i attends to the keys [seen_from(i), seen_by(i)), none if that is empty. Neither falls from i to i + 1.
  constexpr Size seen_from(Size i) const { return SeenKeys{queries, keys, rule, ranges}.from(i); }
  constexpr Size seen_by(Size i) const { return SeenKeys{queries, keys, rule, ranges}.by(i); }
  /// Those of [first, first + count), counted from `first`.
  constexpr KeyRange seen_of(Size i, Size first, Size count) const {
    const Size begin = std::clamp<Size>(seen_from(i) - first, 0, count);
    return {begin, std::clamp<Size>(seen_by(i) - first, begin, count)};
  }
  /// The keys that any of the queries [i, i + rows) attends to; empty if there are none.
  constexpr KeyRange seen_by_rows(Size i, Size rows) const {
    const Size begin = seen_from(i);
    return {begin, std::max(begin, seen_by(i + rows - 1))};
  }
  template <class C>
  C scale() const {
    return rule.scale != 0 ? static_cast<C>(rule.scale) : C(1) / std::sqrt(static_cast<C>(head_dim));
  }
};

namespace detail {

/// A copy of the rows [begin, begin + rows) in the computing type, in `room` ([rows, columns]). Products read it again
/// and again, and rows as they lie among other heads' share cache sets: 1.5 KiB apart, half of them.
template <class T>
HeadRows<const Compute<T>> tile_rows(HeadRows<const T> from, Size begin, Size rows, Size columns, Compute<T>* room) {
  for (Size i = 0; i < rows; ++i) {
    const T* row = from[begin + i];
    if constexpr (std::is_same_v<T, Compute<T>>)
      std::memcpy(room + i * columns, row, static_cast<std::size_t>(columns) * sizeof(T));
    else
      convert_row(row, columns, room + i * columns);
  }
  return {room, columns};
}

/// to(c, i) = from(begin + i, c), converted; columns of `to` up to a multiple of vector_length are 0. `room` holds
/// vector_length rows.
template <class T>
void transpose_tile_rows(HeadRows<const T> from, Size begin, Size rows, Size columns, HeadRows<Compute<T>> to,
                         Compute<T>* room) {
  using C = Compute<T>;
  constexpr Size length = vector_length<C>;
  for (Size i = 0; i < rows; i += length) {
    const Size count = std::min(length, rows - i);
    transpose_rows<C>(tile_rows(from, begin + i, count, columns, room), count, columns, {to.data + i, to.stride});
  }
}

/// Row i, if there is one, into the second cache: rows of one head lie apart, where no processor foresees the next.
template <class T>
[[gnu::always_inline]] inline void prefetch_row(HeadRows<const T> from, Size i, Size rows, Size columns) {
  constexpr Size line = 64 / sizeof(T);
  if (i < rows)
    for (Size c = 0; c < columns; c += line) __builtin_prefetch(from[i] + c, 0, 2);
}

/// What each query of a tile sees of a tile of keys, counted from its first.
template <Size count>
class SeenOfTile {
 public:
  SeenOfTile(const HeadExtents& extents, Size first_query, Size rows, Size first_key, Size keys)
      : rows_(rows), keys_(keys) {
    for (Size i = 0; i < rows; ++i) {
      const KeyRange seen = extents.seen_of(first_query + i, first_key, keys);
      begin_[i] = static_cast<std::int32_t>(seen.begin), end_[i] = static_cast<std::int32_t>(seen.end);
    }
  }
  KeyRange operator[](Size i) const { return {begin_[i], end_[i]}; }
  /// The keys that any of the queries [i, i + rows) sees.
  KeyRange keys_of(Size i, Size rows) const { return {begin_[i], end_[i + rows - 1]}; }
  /// Around what query i sees, the keys of which a product of a group of rows, or of keys, reads its elements.
  KeyRange read_of(Size i) const {
    const Size last = std::min(i / product_rows * product_rows + product_rows, rows_) - 1;
    return {std::max<Size>(std::min(begin_[i / product_rows * product_rows], begin_[i] - product_rows), 0),
            std::min<Size>(std::max(end_[last], end_[i] + product_rows), keys_)};
  }

 private:
  template <Size, Size>
  friend class SeeingOfTile;
  Size rows_, keys_;
  std::int32_t begin_[std::size_t{count}], end_[std::size_t{count}];
};

/// The queries of a tile that see any of a group of product_rows keys.
template <Size count, Size keys>
class SeeingOfTile {
 public:
  explicit SeeingOfTile(const SeenOfTile<count>& seen) {
    Size begin = 0, end = 0;
    for (Size j = 0, group = 0; j < seen.keys_; j += product_rows, ++group) {
      while (begin < seen.rows_ && seen.end_[begin] <= j) ++begin;
      while (end < seen.rows_ && seen.begin_[end] < j + product_rows) ++end;
      begin_[group] = static_cast<std::int32_t>(begin), end_[group] = static_cast<std::int32_t>(std::max(begin, end));
    }
  }
  KeyRange queries_of(Size j) const { return {begin_[j / product_rows], end_[j / product_rows]}; }

 private:
  static constexpr Size groups = (keys + product_rows - 1) / product_rows;
  std::int32_t begin_[std::size_t{groups}], end_[std::size_t{groups}];
};

/// Sets [begin, end) of a row.
template <class C>
void fill_unseen(C* row, Size begin, Size end, C value) {
  for (Size j = begin; j < end; ++j) row[j] = value;
}

/// Rows [begin, end) of a gradient to which nothing contributes.
template <class T>
void zero_rows(HeadRows<T> rows, const KeyRange& range, Size columns) {
  for (Size i = range.begin; i < range.end; ++i) std::fill_n(rows[i], columns, T{});
}

/// The blocks that hold a range.
constexpr KeyRange blocks_of(const KeyRange& range) {
  return {range.begin / block_length * block_length, round_up(range.end, block_length)};
}

/// scores[j] = cap(scale scores[j]) + bias[j] for the seen; bias may be null.
template <class T, class C>
void adjust_scores(C* scores, const KeyRange& seen, C scale, C softcap, const T* bias) {
  const C slope = softcap > 0 ? scale / softcap : scale;
  for (Size j = seen.begin; j < seen.end; ++j) scores[j] *= slope;
  if (softcap > 0)
    for (Size j = seen.begin; j < seen.end; ++j) scores[j] = softcap * math::tanh(scores[j]);
  if (bias != nullptr)
    for (Size j = seen.begin; j < seen.end; ++j) scores[j] += static_cast<C>(bias[j]);
}

/// A block in vectors.
template <class C>
inline constexpr int block_vectors = block_length / vector_length<C>;

/// The sum of a block, in the order of sum_lanes.
template <class C>
[[gnu::always_inline]] inline C sum_vectors(const Vector<C> (&x)[block_vectors<C>]) {
  Lanes<C> lanes;
  for (int v = 0; v < block_vectors<C>; ++v) store_vector(lanes + v * vector_length<C>, x[v]);
  return sum_lanes<C>(lanes);
}

/// The largest of `count` scores, a multiple of block_length.
template <class C>
[[gnu::always_inline]] inline C largest_of(const C* scores, Size count) {
  constexpr int vectors = block_vectors<C>, length = vector_length<C>;
  Vector<C> largest[std::size_t{vectors}];
  DSPP_UNROLL_VECTORS
  for (int v = 0; v < vectors; ++v) largest[v] = load_vector(scores + v * length);
  for (Size j = block_length; j < count; j += block_length) {
    DSPP_UNROLL_VECTORS
    for (int v = 0; v < vectors; ++v) largest[v] = larger<C>(load_vector(scores + j + v * length), largest[v]);
  }
  Lanes<C> lanes;
  for (int v = 0; v < vectors; ++v) store_vector(lanes + v * length, largest[v]);
  return max_lanes<C>(lanes);
}

/// scores[j] = exp(scale scores[j] - shift), for a multiple of block_length; returns their sum.
template <class C>
[[gnu::always_inline]] inline C exponentials(C* scores, Size count, C scale, C shift) {
  constexpr int vectors = block_vectors<C>, length = vector_length<C>;
  Vector<C> sum[std::size_t{vectors}];
  DSPP_UNROLL_VECTORS
  for (int v = 0; v < vectors; ++v) sum[v] = Vector<C>{};
  for (Size j = 0; j < count; j += block_length) {
    DSPP_UNROLL_VECTORS
    for (int v = 0; v < vectors; ++v) {
      C* at = scores + j + v * length;
      const Vector<C> value = exp_of<C>(scale * load_vector(at) - shift);
      store_vector(at, value);
      sum[v] += value;
    }
  }
  return sum_vectors<C>(sum);
}

/// Overwrites scores with the probabilities p = exp(scale scores - shift), and dp with the gradient p (dp - dot) scale
/// of the scores.
template <class C>
[[gnu::always_inline]] inline void score_gradients(C* scores, C* dp, Size count, C scale, C shift, C dot) {
  for (Size j = 0; j < count; j += vector_length<C>) {
    const Vector<C> p = exp_of<C>(scale * load_vector(scores + j) - shift);
    store_vector(scores + j, p);
    store_vector<C>(dp + j, p * (load_vector(dp + j) - dot) * scale);
  }
}

/// The same of adjusted scores: dp becomes the gradient of q k^T, and dbias, which may be null, grows by that of the
/// bias.
template <class T, class C>
void adjusted_score_gradients(C* scores, C* dp, const KeyRange& seen, C scale, C softcap, const T* bias, C shift, C dot,
                              C* dbias) {
  for (Size j = seen.begin; j < seen.end; ++j) {
    C score = scale * scores[j], slope = scale;
    if (softcap > 0) {
      const C t = math::tanh(score / softcap);
      score = softcap * t;
      slope *= C(1) - t * t;
    }
    if (bias != nullptr) score += static_cast<C>(bias[j]);
    const C p = math::exp(score - shift), gradient = p * (dp[j] - dot);
    if (dbias != nullptr) dbias[j] += gradient;
    scores[j] = p;
    dp[j] = gradient * slope;
  }
}

/// The sum of x[i] y[i].
template <class T>
Compute<T> dot_row(const T* x, const T* y, Size count) {
  using C = Compute<T>;
  constexpr int vectors = block_vectors<C>, length = vector_length<C>;
  Vector<C> sum[std::size_t{vectors}];
  DSPP_UNROLL_VECTORS
  for (int v = 0; v < vectors; ++v) sum[v] = Vector<C>{};
  Lanes<C> buffer_x, buffer_y;
  for (Size i = 0; i < count; i += block_length) {
    const C* a = read_block(buffer_x, x + i, count - i);
    const C* b = read_block(buffer_y, y + i, count - i);
    DSPP_UNROLL_VECTORS
    for (int v = 0; v < vectors; ++v) sum[v] += load_vector(a + v * length) * load_vector(b + v * length);
  }
  return sum_vectors<C>(sum);
}

/// to[i] = factor from[i], rounded.
template <class C, class T>
void scale_row(const C* from, Size count, C factor, T* to) {
  if constexpr (std::is_same_v<T, C>) {
    constexpr Size length = vector_length<C>;
    Size i = 0;
    for (; i + length <= count; i += length) store_vector<C>(to + i, load_vector(from + i) * factor);
    for (; i < count; ++i) to[i] = from[i] * factor;
  } else {
    map_row(from, count, to, [factor](C a) { return a * factor; });
  }
}

}  // namespace detail
}  // namespace dspp::cpu
