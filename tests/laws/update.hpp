// SPDX-License-Identifier: Apache-2.0
/// An optimizer's update of a range in host memory.
#pragma once

#include <dspp/optim/optimizer.hpp>

namespace dspp::laws {

template <class O, class T, class G, class S>
void update(const O& optimizer, const FlatRange<T, G, S>& range, const UpdateScalars& scalars) {
  Pool pool;
  update_ranges<T, G, S, Cpu>(
      pool, optimizer, [&](auto f) { f(range, RangeSettings{.decays = scalars.decay}); }, scalars);
}

}  // namespace dspp::laws
