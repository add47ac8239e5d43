// SPDX-License-Identifier: Apache-2.0
/// The pieces that a matrix product is split into.
#pragma once

#include <algorithm>

#include <dspp/ops/kernels.hpp>

namespace dspp::cpu {

using kernels::Product;

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

}  // namespace dspp::cpu
