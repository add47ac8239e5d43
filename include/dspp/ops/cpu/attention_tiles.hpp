// SPDX-License-Identifier: Apache-2.0
/// Parts of attention's forward and backward: heads as strided rows, tiles, and the softmax of a tile's rows.
#pragma once

#include <limits>

#include <dspp/base/math.hpp>
#include <dspp/ops/cpu/gemm/tiles.hpp>

namespace dspp::cpu {

/// One head's rows: element (i, c) is data[i * stride + c].
template <class T>
struct HeadRows {
  T* data = nullptr;
  Size stride = 0;
  T* operator[](Size i) const { return data + i * stride; }
  template <class U>
  requires(std::is_same_v<U, const T>) operator HeadRows<U>() const { return {data, stride}; }
};

/// The extents of one head. Causal needs keys >= queries: the last query attends to the last key.
struct HeadExtents {
  Size queries = 0, keys = 0, head_dim = 0;
  AttentionMask mask = AttentionMask::causal;

  /// Query i attends to the keys [0, seen_by(i)).
  constexpr Size seen_by(Size i) const { return mask == AttentionMask::full ? keys : i + 1 + keys - queries; }
  /// The number of keys in [first, first + count) that query i attends to.
  constexpr Size seen_of(Size i, Size first, Size count) const {
    return std::clamp<Size>(seen_by(i) - first, 0, count);
  }
};

namespace detail {

/// The rows [begin, begin + rows) in the computing type: in place, or converted in `room` ([rows, columns]).
template <class T>
HeadRows<const Compute<T>> tile_rows(HeadRows<const T> from, Size begin, Size rows, Size columns, Compute<T>* room) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return {from[begin], from.stride};
  } else {
    for (Size i = 0; i < rows; ++i) convert_row(from[begin + i], columns, room + i * columns);
    return {room, columns};
  }
}

/// c[m, n] (+)= op(a) op(b) of tiles.
template <class C>
void multiply_tiles(Size m, Size n, Size k, HeadRows<const C> a, Transpose ta, HeadRows<const C> b, Transpose tb,
                    HeadRows<C> c, Write write) {
  gemm_direct(Product{m, n, k, ta, tb, a.stride, b.stride, c.stride}, a.data, b.data, c.data, write);
}

/// Sets [seen, end) of a row; `end` is a multiple of block_length or the row's own end.
template <class C>
void fill_unseen(C* row, Size seen, Size end, C value) {
  for (Size j = seen; j < end; ++j) row[j] = value;
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
