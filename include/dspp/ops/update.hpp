// SPDX-License-Identifier: Apache-2.0
/// An optimizer's update of a range of parameters.
#pragma once

#include <type_traits>

#include <dspp/ops/cpu/update.hpp>

namespace dspp {

namespace detail {
/// What an update reads and writes of a range, each array once each way. Of chosen rows 0: the host does not know them.
template <class T, class G, class S>
constexpr Size moved_bytes(const FlatRange<T, G, S>& range) {
  if (range.rows.marks != nullptr) return 0;
  Size of_state = range.master != nullptr ? 1 : 0;
  for (const S* moments : range.moments) of_state += moments != nullptr ? 1 : 0;
  const Size of_values =
      static_cast<Size>(sizeof(G)) + (range.master != nullptr ? 1 : 2) * static_cast<Size>(sizeof(T));
  return range.count * (of_values + 2 * of_state * static_cast<Size>(sizeof(S)));
}
/// False if the host knows that the update is off.
template <class D>
constexpr bool may_update(const double* step) {
  if constexpr (std::is_same_v<D, Cpu>)
    return updates(step);
  else
    return true;
}
}  // namespace detail

/// Updates ranges by an optimizer's rule: `ranges(f)` calls f(range, RangeSettings) for each FlatRange<T, G, S>, and is
/// not called on paper. scalars.decay is not read. `step`: StepScalars of D, of which the gradient scale is taken and
/// that may turn the update off; null: none.
///
/// Cost     each array is read once, and written once if it changes
template <class T, class G, class S, class D, class O, class Ranges>
constexpr void update_ranges(Memory<D>& memory, const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars,
                             const double* step = nullptr) {
  if constexpr (D::real)
    if (Profiler* const profiler = detail::may_update<D>(step) ? memory.profiler() : nullptr)
      ranges([&](const FlatRange<T, G, S>& range, const auto&) { profiler->count_bytes(detail::moved_bytes(range)); });
  launch<kernels::Update<O, T, G, S>, D>(memory, optimizer, ranges, scalars, step);
}

}  // namespace dspp
