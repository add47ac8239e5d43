// SPDX-License-Identifier: Apache-2.0
/// Sums over rows in pieces that do not depend on the number of threads.
#pragma once

#include <algorithm>

#include <dspp/base/element.hpp>
#include <dspp/ops/write.hpp>

namespace dspp::cpu {

/// Rows are summed in at most this many pieces, whatever the number of threads.
inline constexpr Size most_row_pieces = 32;

/// Rows of one piece.
constexpr Size piece_rows(Size rows) {
  return std::max<Size>(16, (rows + most_row_pieces - 1) / most_row_pieces);
}

/// How many pieces there are.
constexpr Size row_pieces(Size rows) {
  return (rows + piece_rows(rows) - 1) / piece_rows(rows);
}

/// into[j] (+)= sum over pieces of scratch[piece * stride + j], rounded once.
template <class G, class C>
void sum_pieces(Size pieces, Size n, Size stride, const C* scratch, G* into, Write write) {
  for (Size j = 0; j < n; ++j) {
    C sum = write == Write::accumulate ? static_cast<C>(into[j]) : C(0);
    for (Size piece = 0; piece < pieces; ++piece) sum += scratch[piece * stride + j];
    into[j] = static_cast<G>(sum);
  }
}

}  // namespace dspp::cpu
