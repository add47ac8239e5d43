// SPDX-License-Identifier: Apache-2.0
/// Updates whose length depends on the norms of whole parameters and whole updates, and the sums for them.
#pragma once

#include <dspp/ops/cpu/update_by_norms.hpp>

namespace dspp {

/// Adds the squares of parameters and updates of ranges: `ranges(f)` calls f(range, RangeSettings, double* sums) for
/// each, pointers of D, and is not called on paper. `step` as in update_ranges.
///
/// Cost     reads each array once
template <class T, class G, class S, class D, class O, class Ranges>
constexpr void add_update_squares(Memory<D>& memory, const O& optimizer, const Ranges& ranges,
                                  const UpdateScalars& scalars, const double* step) {
  launch<kernels::AddUpdateSquares<O, T, G, S>, D>(memory, optimizer, ranges, scalars, step);
}

/// Updates ranges by an optimizer's direction and ratio: `ranges(f)` calls f(range, RangeSettings, const double* sums).
///
/// Cost     as update_ranges
template <class T, class G, class S, class D, class O, class Ranges>
constexpr void update_by_norms(Memory<D>& memory, const O& optimizer, const Ranges& ranges,
                               const UpdateScalars& scalars, const double* step) {
  launch<kernels::UpdateByNorms<O, T, G, S>, D>(memory, optimizer, ranges, scalars, step);
}

/// sums[0], sums[1] += those of `count` pairs, `stride` apart: `ranges(f)` calls f(count, stride, parts, sums).
template <class D, class Ranges>
constexpr void add_pairs(Memory<D>& memory, const Ranges& ranges) {
  launch<kernels::AddPairs, D>(memory, ranges);
}

}  // namespace dspp
