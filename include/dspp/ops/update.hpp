// SPDX-License-Identifier: Apache-2.0
/// An optimizer's update of a range of parameters.
#pragma once

#include <dspp/ops/cpu/update.hpp>

namespace dspp {

/// Updates ranges by an optimizer's rule: `ranges(f)` calls f(range, RangeSettings) for each FlatRange<T, G, S>, and is
/// not called on paper. scalars.decay is not read. `step`: StepScalars of D, of which the gradient scale is taken and
/// that may turn the update off; null: none.
///
/// Cost     each array is read once, and written once if it changes
template <class T, class G, class S, class D, class O, class Ranges>
constexpr void update_ranges(Memory<D>& memory, const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars,
                             const double* step = nullptr) {
  launch<kernels::Update<O, T, G, S>, D>(memory, optimizer, ranges, scalars, step);
}

}  // namespace dspp
