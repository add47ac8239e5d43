// SPDX-License-Identifier: Apache-2.0
/// What a matrix product looks like in memory, and how it is cut into pieces.
#pragma once

#include <algorithm>

#include <dspp/base/types.hpp>

namespace dspp {

/// Whether an operand enters a product as it lies in memory, or transposed.
enum class Transpose : bool { no, yes };

namespace ops {
using dspp::Transpose;
}

namespace cpu {

/// c[m, n] = op(a)[m, k] op(b)[k, n], each row-major with the given distance between rows.
struct Product {
  Size m = 0, n = 0, k = 0;
  Transpose ta = Transpose::no, tb = Transpose::no;
  Size lda = 0, ldb = 0, ldc = 0;

  /// Where row i of op(a), column j of op(b) and element (i, j) of c begin.
  constexpr Size a_offset(Size i, Size p = 0) const { return ta == Transpose::no ? i * lda + p : p * lda + i; }
  constexpr Size b_offset(Size j, Size p = 0) const { return tb == Transpose::no ? p * ldb + j : j * ldb + p; }
  constexpr Size c_offset(Size i, Size j) const { return i * ldc + j; }

  /// The same layout, another extent.
  constexpr Product sized(Size rows, Size columns, Size depth) const {
    return {rows, columns, depth, ta, tb, lda, ldb, ldc};
  }
};

/// A rectangle of c: rows [row, row + rows), columns [column, column + columns).
struct Piece {
  Size row = 0, rows = 0, column = 0, columns = 0;
};

/// Cuts c into pieces of at most `rows` x `columns`. Depends on the extents alone, so that the bits of a product do not
/// depend on the number of threads.
struct Cut {
  Size m = 0, n = 0, rows = 1, columns = 1;
  constexpr Size across() const { return (n + columns - 1) / columns; }
  constexpr Size pieces() const { return (m + rows - 1) / rows * across(); }
  constexpr Piece operator[](Size i) const {
    const Size row = i / across() * rows, column = i % across() * columns;
    return {row, std::min(rows, m - row), column, std::min(columns, n - column)};
  }
};

}  // namespace cpu
}  // namespace dspp
