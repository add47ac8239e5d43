// SPDX-License-Identifier: Apache-2.0
/// Launches of kernels that need a workspace on some devices.
#pragma once

#include <dspp/tensor/kernel.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::ops::detail {

/// The extents that a kernel's workspace depends on.
struct WorkspaceFor {
  Size rows = 0, columns = 0;
  const char* who = "";
};

/// Runs the kernel; where the device's has a workspace_bytes(rows, columns), with a workspace of that size as its last
/// argument.
template <class Name, Device D, class... Arguments>
constexpr void launch_with_workspace(Memory<D>& memory, const WorkspaceFor& of, const Arguments&... arguments) {
  if constexpr (requires { PlannedKernel<Name, D>::workspace_bytes(of.rows, of.columns); }) {
    const auto workspace = Tensor<std::uint8_t, 1, D>::uninitialized(
        shape(PlannedKernel<Name, D>::workspace_bytes(of.rows, of.columns)), memory, Category::workspace, of.who);
    launch<Name, D>(memory, arguments..., workspace.data());
  } else {
    launch<Name, D>(memory, arguments...);
  }
}

}  // namespace dspp::ops::detail
