// SPDX-License-Identifier: Apache-2.0
/// Kernels: the numeric code of a device, one for each operation, called by name.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/tensor/device.hpp>

namespace dspp {

/// Runs the kernel of that name on D, in the order of launches. On paper it does nothing.
template <class Name, Device D, class... Arguments>
constexpr void launch([[maybe_unused]] Memory<D>& memory, [[maybe_unused]] const Arguments&... arguments) {
  if constexpr (D::real) D::template launch<Name>(memory, arguments...);
}

/// The same for a kernel that returns a value: waits for it. On paper it returns `on_paper`.
template <class Name, Device D, class Value, class... Arguments>
constexpr Value ask([[maybe_unused]] Memory<D>& memory, Value on_paper,
                    [[maybe_unused]] const Arguments&... arguments) {
  if constexpr (D::real)
    return D::template ask<Name>(memory, arguments...);
  else
    return on_paper;
}

/// Tells a profiler that the kernel launched next reads or writes each of these tensors once.
template <class First, class... Others>
constexpr void note_moved(const First& first, const Others&... others) {
  if constexpr (First::DeviceType::real)
    if (Profiler* const profiler = first.memory().profiler())
      profiler->count_bytes((first.bytes() + ... + others.bytes()));
}

/// The kernel whose workspace is counted on paper: that of the device which D imitates.
template <class Name, Device D>
using PlannedKernel = Kernel<Name, typename D::Imitated>;

}  // namespace dspp
