// SPDX-License-Identifier: Apache-2.0
/// The parts of a norm over many ranges and ranks: sums of squares, in pairs that are added in a fixed order.
#pragma once

#include <dspp/ops/cpu/gradient_norm.hpp>

namespace dspp::ops {

/// *sum += the sum of squares of each range: `ranges(f)` calls f(count, x, sum) for each, pointers of D, and is not
/// called on paper. Not counted as operations.
///
/// Cost     reads the ranges once
template <class T, class D, class Ranges>
constexpr void add_squares(Memory<D>& memory, const Ranges& ranges) {
  launch<kernels::AddSquares<T>, D>(memory, ranges);
}

/// sums[k] += the sum of squares of the k-th row: `ranges(f)` calls f(count, columns, first, x, sums) for elements
/// [first, first + count) of each matrix, pointers of D, and is not called on paper. Not counted as operations.
///
/// Cost     reads the ranges once
template <class T, class D, class Ranges>
constexpr void add_row_squares(Memory<D>& memory, const Ranges& ranges) {
  launch<kernels::AddRowSquares<T>, D>(memory, ranges);
}

/// sum[k] = the sum over i of x[2 i + k], in order.
template <class D>
constexpr void sum_pairs(Memory<D>& memory, Size pairs, const double* x, double* sum) {
  launch<kernels::SumPairs, D>(memory, pairs, x, sum);
}

/// squares[0] = the root of squares[1] plus all squares[2 r], if all of these are finite, else not finite.
template <class D>
constexpr void norm_of_pairs(Memory<D>& memory, int ranks, double* squares) {
  launch<kernels::NormOfPairs, D>(memory, ranks, squares);
}

}  // namespace dspp::ops
