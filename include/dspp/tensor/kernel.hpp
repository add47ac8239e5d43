// SPDX-License-Identifier: Apache-2.0
/// Kernels: the numeric code of a device, one for each operation, called by name.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/tensor/device.hpp>

namespace dspp {

/// The numeric code of one operation on device D: a static function `run` of pointers into D's memory, extents and
/// numbers, which are copied. `Name` is one of namespace kernels, beside the operation that launches it (ops/), which
/// says what the arguments are. A device specialises Kernel for each name: the Cpu's are in ops/cpu/.
///
/// Kernels are not constexpr, and their definitions need not be seen where they are launched: see DSPP_COMPILED in
/// base/config.hpp.
template <class Name, class D>
struct Kernel;

/// Runs the kernel of that name on D, in the order of launches. On paper there is nothing to run.
template <class Name, Device D, class... Arguments>
constexpr void launch([[maybe_unused]] Memory<D>& memory, [[maybe_unused]] const Arguments&... arguments) {
  if constexpr (D::real) Kernel<Name, D>::run(arguments...);
}

/// The kernel whose workspace paper counts: that of the device which D imitates.
template <class Name, Device D>
using PlannedKernel = Kernel<Name, typename D::Imitated>;

}  // namespace dspp
