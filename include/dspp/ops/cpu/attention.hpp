// SPDX-License-Identifier: Apache-2.0
/// Attention on the Cpu in tiles of queries x keys: sequence x sequence is never in memory.
#pragma once

#include <cmath>
#include <limits>

#include <dspp/ops/cpu/gemm.hpp>

namespace dspp {

/// causal: position i sees positions 0 .. i; full: it sees all.
enum class AttentionMask { causal, full };

namespace ops {
using dspp::AttentionMask;
}

namespace cpu {

/// One head's rows: element (i, c) of it is data[i * stride + c].
template <class T>
struct HeadRows {
  T* data = nullptr;
  Size stride = 0;
};

/// The extents of one head.
struct HeadExtents {
  Size queries = 0, keys = 0, head_dim = 0;
  AttentionMask mask = AttentionMask::causal;
  /// Whether query i sees key j. Causal: the last query sees the last key.
  constexpr Size seen_by(Size i) const { return mask == AttentionMask::full ? keys : i + 1 + keys - queries; }
};

/// y = softmax(scale q k^T) v of one head, and the logarithm of each row's sum of exponentials; scale =
/// 1/sqrt(head_dim).
///
/// Cost     4 queries keys head_dim operations, half of that when causal; on the calling thread
/// Memory   scratch of attention_scratch_bytes
/// Source   Dao et al. 2022, FlashAttention, algorithm 1; Milakov and Gimelshein 2018 for the running softmax
template <class T>
void attention_head(const HeadExtents& extents, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                    HeadRows<T> y, Compute<T>* log_sum_exp);

/// The gradients of attention_head from its inputs, results and dy; the softmax is computed again.
/// dq is accumulated in f32 or f64, hence its type: it may be the final place when T is not bf16.
///
/// Cost     10 queries keys head_dim operations, half of that when causal
/// Source   Dao et al. 2022, algorithm 4
template <class T>
void attention_head_vjp(const HeadExtents& extents, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                        HeadRows<const T> y, const Compute<T>* log_sum_exp, HeadRows<const T> dy,
                        HeadRows<Compute<T>> dq, HeadRows<T> dk, HeadRows<T> dv);

/// Queries and keys of a tile.
inline constexpr Size attention_tile = 64;

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Rows of T as rows of Compute<T>: themselves, or their conversion in `room`.
template <class T>
HeadRows<const Compute<T>> widened(HeadRows<const T> from, Size begin, Size rows, Size columns, Compute<T>* room) {
  if constexpr (std::is_same_v<T, bf16>) {
    for (Size i = 0; i < rows; ++i) convert_row(from.data + (begin + i) * from.stride, columns, room + i * columns);
    return {room, columns};
  } else {
    return {from.data + begin * from.stride, from.stride};
  }
}

template <class C>
void small_gemm(Size m, Size n, Size k, HeadRows<const C> a, Transpose ta, HeadRows<const C> b, Transpose tb,
                HeadRows<C> c, Write write) {
  gemm_direct(Product{m, n, k, ta, tb, a.stride, b.stride, c.stride}, a.data, b.data, c.data, write);
}

template <class C>
constexpr HeadRows<const C> read(HeadRows<C> rows) {
  return {rows.data, rows.stride};
}

/// scores -> exp(scale score - maximum), masked; returns their sum.
template <class C>
C exponentials(C* scores, Size seen, Size count, C scale, C shift) {
  C sum = 0;
  for (Size j = 0; j < seen; ++j) sum += scores[j] = std::exp(scores[j] * scale - shift);
  for (Size j = seen; j < count; ++j) scores[j] = 0;
  return sum;
}

constexpr Size clamp_seen(Size seen, Size first_key, Size keys) {
  return std::clamp<Size>(seen - first_key, 0, keys);
}

}  // namespace detail

template <class T>
void attention_head(const HeadExtents& extents, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                    HeadRows<T> y, Compute<T>* log_sum_exp) {
  using C = Compute<T>;
  constexpr Size tile = attention_tile;
  const Size d = extents.head_dim;
  const C scale = C(1) / std::sqrt(static_cast<C>(d));
  Scratch<C> room(tile * tile + 4 * tile * d + 2 * tile);
  C *scores = room.data(), *sum_v = scores + tile * tile, *q_room = sum_v + tile * d, *k_room = q_room + tile * d,
    *v_room = k_room + tile * d, *maximum = v_room + tile * d, *sum = maximum + tile;
  for (Size i0 = 0; i0 < extents.queries; i0 += tile) {
    const Size rows = std::min(tile, extents.queries - i0);
    const auto q_tile = detail::widened(q, i0, rows, d, q_room);
    std::fill_n(maximum, rows, -std::numeric_limits<C>::infinity());
    std::fill_n(sum, rows, C(0));
    std::fill_n(sum_v, rows * d, C(0));
    const Size end = extents.seen_by(i0 + rows - 1);
    for (Size j0 = 0; j0 < end; j0 += tile) {
      const Size columns = std::min(tile, end - j0);
      const auto k_tile = detail::widened(k, j0, columns, d, k_room);
      const auto v_tile = detail::widened(v, j0, columns, d, v_room);
      detail::small_gemm<C>(rows, columns, d, q_tile, Transpose::no, k_tile, Transpose::yes, {scores, tile},
                            Write::overwrite);
      for (Size i = 0; i < rows; ++i) {
        C* row = scores + i * tile;
        const Size seen = detail::clamp_seen(extents.seen_by(i0 + i), j0, columns);
        if (seen == 0) {
          std::fill_n(row, columns, C(0));
          continue;
        }
        C top = maximum[i];
        for (Size j = 0; j < seen; ++j) top = std::max(top, row[j] * scale);
        const C shrink = std::exp(maximum[i] - top);
        sum[i] = sum[i] * shrink + detail::exponentials(row, seen, columns, scale, top);
        maximum[i] = top;
        for (Size c = 0; c < d; ++c) sum_v[i * d + c] *= shrink;
      }
      detail::small_gemm<C>(rows, d, columns, {scores, tile}, Transpose::no, v_tile, Transpose::no, {sum_v, d},
                            Write::accumulate);
    }
    for (Size i = 0; i < rows; ++i) {
      for (Size c = 0; c < d; ++c) y.data[(i0 + i) * y.stride + c] = T(sum_v[i * d + c] / sum[i]);
      log_sum_exp[i0 + i] = maximum[i] + std::log(sum[i]);
    }
  }
}

template <class T>
void attention_head_vjp(const HeadExtents& extents, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                        HeadRows<const T> y, const Compute<T>* log_sum_exp, HeadRows<const T> dy,
                        HeadRows<Compute<T>> dq, HeadRows<T> dk, HeadRows<T> dv) {
  using C = Compute<T>;
  constexpr Size tile = attention_tile;
  const Size d = extents.head_dim;
  const C scale = C(1) / std::sqrt(static_cast<C>(d));
  Scratch<C> room(2 * tile * tile + 6 * tile * d + extents.queries);
  C *scores = room.data(), *dscores = scores + tile * tile, *dk_sum = dscores + tile * tile,
    *dv_sum = dk_sum + tile * d, *q_room = dv_sum + tile * d, *k_room = q_room + tile * d, *v_room = k_room + tile * d,
    *dy_room = v_room + tile * d, *dot = dy_room + tile * d;
  for (Size i = 0; i < extents.queries; ++i) {
    dot[i] = 0;
    for (Size c = 0; c < d; ++c)
      dot[i] += static_cast<C>(y.data[i * y.stride + c]) * static_cast<C>(dy.data[i * dy.stride + c]);
  }
  for (Size j0 = 0; j0 < extents.keys; j0 += tile) {
    const Size columns = std::min(tile, extents.keys - j0);
    const auto k_tile = detail::widened(k, j0, columns, d, k_room);
    const auto v_tile = detail::widened(v, j0, columns, d, v_room);
    std::fill_n(dk_sum, columns * d, C(0));
    std::fill_n(dv_sum, columns * d, C(0));
    for (Size i0 = 0; i0 < extents.queries; i0 += tile) {
      const Size rows = std::min(tile, extents.queries - i0);
      if (extents.seen_by(i0 + rows - 1) <= j0) continue;
      const auto q_tile = detail::widened(q, i0, rows, d, q_room);
      const auto dy_tile = detail::widened(dy, i0, rows, d, dy_room);
      detail::small_gemm<C>(rows, columns, d, q_tile, Transpose::no, k_tile, Transpose::yes, {scores, tile},
                            Write::overwrite);
      detail::small_gemm<C>(rows, columns, d, dy_tile, Transpose::no, v_tile, Transpose::yes, {dscores, tile},
                            Write::overwrite);
      for (Size i = 0; i < rows; ++i) {
        C *row = scores + i * tile, *drow = dscores + i * tile;
        const Size seen = detail::clamp_seen(extents.seen_by(i0 + i), j0, columns);
        detail::exponentials(row, seen, columns, scale, log_sum_exp[i0 + i]);
        for (Size j = 0; j < columns; ++j) drow[j] = row[j] * (drow[j] - dot[i0 + i]) * scale;
      }
      detail::small_gemm<C>(columns, d, rows, {scores, tile}, Transpose::yes, dy_tile, Transpose::no, {dv_sum, d},
                            Write::accumulate);
      detail::small_gemm<C>(columns, d, rows, {dscores, tile}, Transpose::yes, q_tile, Transpose::no, {dk_sum, d},
                            Write::accumulate);
      detail::small_gemm<C>(rows, d, columns, {dscores, tile}, Transpose::no, k_tile, Transpose::no,
                            {dq.data + i0 * dq.stride, dq.stride}, j0 == 0 ? Write::overwrite : Write::accumulate);
    }
    for (Size j = 0; j < columns; ++j) {
      convert_row(dk_sum + j * d, d, dk.data + (j0 + j) * dk.stride);
      convert_row(dv_sum + j * d, d, dv.data + (j0 + j) * dv.stride);
    }
  }
}

}  // namespace cpu
}  // namespace dspp
