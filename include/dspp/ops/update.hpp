// SPDX-License-Identifier: Apache-2.0
/// An optimizer's update of a range of parameters.
#pragma once

#include <dspp/ops/cpu/update.hpp>

namespace dspp {

/// Updates a range by an optimizer's rule. Each array is read once, and written once if it changes.
template <class D, class O, class T, class G, class S>
constexpr void update_range(Memory<D>& memory, const O& optimizer, const FlatRange<T, G, S>& range,
                            const UpdateScalars& scalars) {
  launch<kernels::Update<O, T, G, S>, D>(memory, optimizer, range, scalars);
}

}  // namespace dspp
