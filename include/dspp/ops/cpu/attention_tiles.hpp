// SPDX-License-Identifier: Apache-2.0
/// Parts of attention's forward and backward: heads as strided rows, tiles, and the softmax of a tile's rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <dspp/base/math.hpp>
#include <dspp/ops/cpu/gemm/tiles.hpp>
#include <dspp/ops/seen_keys.hpp>

namespace dspp::cpu {

/// Queries and keys of a tile, forward and backward: products of 64 x 64 x head_dim run at nine tenths of the
/// provider's best rate, and a causal sequence of 256 skips three eighths of its pairs, since a tile ends with the keys
/// that its queries see.
struct AttentionTile {
  Size queries = 64, keys = 256, vjp_queries = 64, vjp_keys = 128;
};
inline constexpr AttentionTile attention_tile{};

/// One head's rows: element (i, c) is data[i * stride + c].
template <class T>
struct HeadRows {
  T* data = nullptr;
  Size stride = 0;
  T* operator[](Size i) const { return data + i * stride; }
  template <class U>
  requires(std::is_same_v<U, const T>) operator HeadRows<U>() const { return {data, stride}; }
};

/// The keys [begin, end).
struct KeyRange {
  Size begin = 0, end = 0;
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

/// Whether tile_rows copies any: those of f64 are neither converted nor do they collide.
template <class T>
inline constexpr bool copies_rows = !std::is_same_v<T, double>;

/// The rows [begin, begin + rows) in the computing type: in place, or converted in `room` ([rows, columns]). Rows that
/// collide, and whose copies do not, are copied there where a product walks down their columns: as a right operand that
/// is not transposed.
template <class T>
HeadRows<const Compute<T>> tile_rows(HeadRows<const T> from, Size begin, Size rows, Size columns, Compute<T>* room,
                                     bool walked = false) {
  if constexpr (std::is_same_v<T, Compute<T>>)
    if (!walked || !rows_collide<T>(from.stride) || rows_collide<T>(columns)) return {from[begin], from.stride};
  for (Size i = 0; i < rows; ++i) convert_row(from[begin + i], columns, room + i * columns);
  return {room, columns};
}

/// c[m, n] (+)= op(a) op(b) of tiles.
template <class C>
void multiply_tiles(Size m, Size n, Size k, HeadRows<const C> a, Transpose ta, HeadRows<const C> b, Transpose tb,
                    HeadRows<C> c, Write write) {
  gemm_direct(Product{m, n, k, ta, tb, a.stride, b.stride, c.stride}, a.data, b.data, c.data, write);
}

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

/// The largest of `count` scores, a multiple of block_length.
template <class C>
C largest_of(const C* scores, Size count) {
  Lanes<C> largest;
  for (int k = 0; k < block_length; ++k) largest[k] = scores[k];
  for (Size j = block_length; j < count; j += block_length)
    for (int k = 0; k < block_length; ++k) largest[k] = scores[j + k] > largest[k] ? scores[j + k] : largest[k];
  return max_lanes<C>(largest);
}

/// scores[j] = exp(scale scores[j] - shift), for a multiple of block_length; returns their sum.
template <class C>
C exponentials(C* scores, Size count, C scale, C shift) {
  Lanes<C> sum = {};
  for (Size j = 0; j < count; j += block_length)
    for (int k = 0; k < block_length; ++k) {
      const C value = math::exp(scale * scores[j + k] - shift);
      scores[j + k] = value;
      sum[k] += value;
    }
  return sum_lanes<C>(sum);
}

/// Overwrites scores with the probabilities p = exp(scale scores - shift), and dp with the gradient p (dp - dot) scale
/// of the scores.
template <class C>
void score_gradients(C* scores, C* dp, Size count, C scale, C shift, C dot) {
  for (Size j = 0; j < count; j += block_length)
    for (int k = 0; k < block_length; ++k) {
      const C p = math::exp(scale * scores[j + k] - shift);
      scores[j + k] = p;
      dp[j + k] = p * (dp[j + k] - dot) * scale;
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
  Lanes<C> sum = {}, buffer_x, buffer_y;
  for (Size i = 0; i < count; i += block_length) {
    const C* a = read_block(buffer_x, x + i, count - i);
    const C* b = read_block(buffer_y, y + i, count - i);
    for (int j = 0; j < block_length; ++j) sum[j] += a[j] * b[j];
  }
  return sum_lanes<C>(sum);
}

}  // namespace detail
}  // namespace dspp::cpu
