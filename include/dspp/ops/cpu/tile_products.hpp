// SPDX-License-Identifier: Apache-2.0
/// Products of tiles in caches, of which each row needs a range: attention's, whose queries see ranges of keys.
/// Other products (gemm/gemm.hpp) are the provider's.
#pragma once

#include <algorithm>

#include <dspp/base/intrinsics.hpp>
#include <dspp/ops/cpu/vectors.hpp>

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

/// The keys, or other columns or rows, [begin, end).
struct KeyRange {
  Size begin = 0, end = 0;
};

/// A left operand, of which elements are read one at a time: (i, p) is data[i * row + p * depth].
template <class C>
struct LeftTile {
  const C* data = nullptr;
  Size row = 0, depth = 0;

  LeftTile(HeadRows<const C> rows) : data(rows.data), row(rows.stride), depth(1) {}
  LeftTile(const C* first, Size row_step, Size depth_step) : data(first), row(row_step), depth(depth_step) {}
  /// Columns as rows.
  static LeftTile transposed(HeadRows<const C> rows) { return {rows.data, 1, rows.stride}; }
};

/// Rows and vectors of sums that a product holds in registers, beside one row's vectors of the right operand and one
/// element of the left.
inline constexpr int product_rows = DSPP_HAS_AVX512() ? 4 : 6, product_vectors = DSPP_HAS_AVX512() ? 4 : 2;

/// Elements by which rows of scratch are longer than needed: distances of 2^n bytes would share cache sets.
template <class C>
inline constexpr Size row_padding = 64 / sizeof(C);

/// c (+)= a b for `rows` rows, b [depth, columns]. f(i, count) is the KeyRange of depths that the rows [i, i + count)
/// take; others are as if a were 0 there, also where b is NaN. An element's sum is in order of depth, whatever the
/// ranges.
///
/// Cost     2 rows depth columns operations at most, on the calling thread
template <class C, class DepthsOf>
void multiply_by_rows(Size rows, Size columns, LeftTile<C> a, HeadRows<const C> b, HeadRows<C> c, bool accumulate,
                      DepthsOf f);

/// c = a b for `rows` rows, b [depth, round_up(columns, vector_length)]. f(i, count) is the range of columns that the
/// rows [i, i + count) need; others may be written, too, up to a multiple of vector_length.
template <class C, class ColumnsOf>
void multiply_to_ranges(Size rows, Size columns, Size depth, LeftTile<C> a, HeadRows<const C> b, HeadRows<C> c,
                        ColumnsOf f);

/// to(c, i) = from(i, c) for `rows` rows of `columns`; rows up to a multiple of vector_length are 0.
template <class C>
void transpose_rows(HeadRows<const C> from, Size rows, Size columns, HeadRows<C> to);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Rows x vectors of c, or rows x `part` columns of one vector. (A LeftTile as an argument would be written to the
/// stack by words and read by pairs of them, which waits.)
template <class C, int rows, int vectors, bool is_part = false>
void multiply_block(Size depth, const C* a, Size a_row, Size a_depth, const C* b, Size b_stride, C* c, Size c_stride,
                    bool accumulate, [[maybe_unused]] Size part = 0) {
  constexpr int length = vector_length<C>;
  Vector<C> sums[std::size_t{rows}][std::size_t{vectors}];
  DSPP_UNROLL_VECTORS
  for (int r = 0; r < rows; ++r) {
    DSPP_UNROLL_VECTORS
    for (int v = 0; v < vectors; ++v) sums[r][v] = Vector<C>{};
  }
  for (Size p = 0; p < depth; ++p) {
    Vector<C> right[std::size_t{vectors}];
    DSPP_UNROLL_VECTORS
    for (int v = 0; v < vectors; ++v) right[v] = is_part ? load_part(b, part) : load_vector(b + v * length);
    DSPP_UNROLL_VECTORS
    for (int r = 0; r < rows; ++r) {
      const C left = a[r * a_row];
      DSPP_UNROLL_VECTORS
      for (int v = 0; v < vectors; ++v) sums[r][v] += left * right[v];
    }
    a += a_depth;
    b += b_stride;
  }
  DSPP_UNROLL_VECTORS
  for (int r = 0; r < rows; ++r) {
    DSPP_UNROLL_VECTORS
    for (int v = 0; v < vectors; ++v) {
      C* to = c + r * c_stride + v * length;
      if constexpr (is_part)
        store_part<C>(to, accumulate ? load_part(to, part) + sums[r][v] : sums[r][v], part);
      else
        store_vector<C>(to, accumulate ? load_vector(to) + sums[r][v] : sums[r][v]);
    }
  }
}

/// The block of `count` vectors, at most `vectors`.
template <class C, int rows, int vectors = product_vectors>
[[gnu::always_inline]] inline void multiply_vectors(Size count, Size depth, const LeftTile<C>& a, const C* b,
                                                    Size b_stride, C* c, Size c_stride, bool accumulate) {
  if constexpr (vectors > 1)
    if (count < vectors)
      return multiply_vectors<C, rows, vectors - 1>(count, depth, a, b, b_stride, c, c_stride, accumulate);
  multiply_block<C, rows, vectors>(depth, a.data, a.row, a.depth, b, b_stride, c, c_stride, accumulate);
}

/// f(i, rows as a constant) for rows in groups of product_rows, the rest in smaller ones: a single row's sums wait for
/// one another.
template <class F>
[[gnu::always_inline]] inline void each_row_group(Size rows, F f) {
  Size i = 0;
  for (; i + product_rows <= rows; i += product_rows) f(i, std::integral_constant<int, product_rows>());
  if (product_rows > 4 && i + 4 <= rows) {
    f(i, std::integral_constant<int, 4>());
    i += 4;
  }
  if (i + 2 <= rows) {
    f(i, std::integral_constant<int, 2>());
    i += 2;
  }
  if (i < rows) f(i, std::integral_constant<int, 1>());
}

}  // namespace detail

template <class C, class DepthsOf>
void multiply_by_rows(Size rows, Size columns, LeftTile<C> a, HeadRows<const C> b, HeadRows<C> c, bool accumulate,
                      DepthsOf f) {
  constexpr Size length = vector_length<C>, strip = product_vectors * length;
  const Size part = columns % length;
  for (Size column = 0; column < columns; column += strip)
    detail::each_row_group(rows, [&](Size i, auto count) {
      const KeyRange depths = f(i, count);
      if (accumulate && depths.begin >= depths.end) return;
      const LeftTile<C> left(a.data + i * a.row + depths.begin * a.depth, a.row, a.depth);
      const Size depth = std::max<Size>(depths.end - depths.begin, 0), whole = std::min(strip, columns - part - column);
      const C* const right = b[depths.begin] + column;
      C* const to = c[i] + column;
      if (whole > 0)
        detail::multiply_vectors<C, count>(whole / length, depth, left, right, b.stride, to, c.stride, accumulate);
      if (whole < strip && part > 0)
        detail::multiply_block<C, count, 1, true>(depth, left.data, left.row, left.depth, right + whole, b.stride,
                                                  to + whole, c.stride, accumulate, part);
    });
}

template <class C, class ColumnsOf>
void multiply_to_ranges(Size rows, Size columns, Size depth, LeftTile<C> a, HeadRows<const C> b, HeadRows<C> c,
                        ColumnsOf f) {
  constexpr Size length = vector_length<C>, strip = product_vectors * length;
  for (Size column = 0; column < columns; column += strip)
    detail::each_row_group(rows, [&](Size i, auto count) {
      const KeyRange needed = f(i, count);
      const Size begin = std::max(column, needed.begin / length * length), end = std::min(column + strip, needed.end);
      if (begin >= end) return;
      const LeftTile<C> left(a.data + i * a.row, a.row, a.depth);
      detail::multiply_vectors<C, count>((end - begin + length - 1) / length, depth, left, b.data + begin, b.stride,
                                         c[i] + begin, c.stride, false);
    });
}

namespace detail {

#if DSPP_HAS_AVX512()
/// A square of vector_length rows.
inline void transpose_square(HeadRows<const float> from, HeadRows<float> to) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from[i]);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int half = 0; half < 2; ++half) {
      const __m512d x = _mm512_castps_pd(t[i + half]), y = _mm512_castps_pd(t[i + half + 2]);
      r[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      r[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  // Quarter l of r[4 i + c] holds column 4 l + c of the rows from 4 i on.
  for (int c = 0; c < 4; ++c) {
    const __m512 even_a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88),
                 odd_a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd),
                 even_b = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88),
                 odd_b = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_storeu_ps(to[c], _mm512_shuffle_f32x4(even_a, even_b, 0x88));
    _mm512_storeu_ps(to[4 + c], _mm512_shuffle_f32x4(odd_a, odd_b, 0x88));
    _mm512_storeu_ps(to[8 + c], _mm512_shuffle_f32x4(even_a, even_b, 0xdd));
    _mm512_storeu_ps(to[12 + c], _mm512_shuffle_f32x4(odd_a, odd_b, 0xdd));
  }
}
#elif DSPP_HAS_AVX()
inline void transpose_square(HeadRows<const float> from, HeadRows<float> to) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from[i]);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int half = 0; half < 2; ++half) {
      const __m256d x = _mm256_castps_pd(t[i + half]), y = _mm256_castps_pd(t[i + half + 2]);
      r[i + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
      r[i + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
    }
  // Half l of r[4 i + c] holds column 4 l + c of the rows from 4 i on.
  for (int c = 0; c < 4; ++c) {
    _mm256_storeu_ps(to[c], _mm256_permute2f128_ps(r[c], r[4 + c], 0x20));
    _mm256_storeu_ps(to[4 + c], _mm256_permute2f128_ps(r[c], r[4 + c], 0x31));
  }
}
#endif

template <class C>
void transpose_square(HeadRows<const C> from, HeadRows<C> to) {
  for (int i = 0; i < vector_length<C>; ++i)
    for (int c = 0; c < vector_length<C>; ++c) to[c][i] = from[i][c];
}

}  // namespace detail

template <class C>
void transpose_rows(HeadRows<const C> from, Size rows, Size columns, HeadRows<C> to) {
  constexpr Size length = vector_length<C>;
  for (Size i = 0; i < rows; i += length)
    for (Size c = 0; c < columns; c += length) {
      if (i + length <= rows && c + length <= columns) {
        detail::transpose_square(HeadRows<const C>{from[i] + c, from.stride}, HeadRows<C>{to[c] + i, to.stride});
        continue;
      }
      for (Size column = c; column < std::min(c + length, columns); ++column)
        for (Size row = i; row < i + length; ++row) to[column][row] = row < rows ? from[row][column] : C(0);
    }
}

}  // namespace dspp::cpu
