// SPDX-License-Identifier: Apache-2.0
/// Launches of kernels that need a workspace on some devices.
#pragma once

#include <dspp/ops/kernels.hpp>
#include <dspp/tensor/kernel.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::ops::detail {

/// What a kernel's workspace depends on.
struct WorkspaceFor {
  Size rows = 0, columns = 0;
  const char* who = "";

  template <class K>
  constexpr auto bytes_of() const -> decltype(K::workspace_bytes(rows, columns)) {
    return K::workspace_bytes(rows, columns);
  }
};
struct AttentionWorkspaceFor {
  const kernels::AttentionExtents& at;
  bool has_extras;  ///< ranges of keys, or a bias
  const char* who;

  template <class K>
  constexpr auto bytes_of() const -> decltype(K::workspace_bytes(at, has_extras)) {
    return K::workspace_bytes(at, has_extras);
  }
};

/// Runs the kernel; where the device's has workspace_bytes(...), with a workspace of that size as its last argument.
template <class Name, Device D, class For = WorkspaceFor, class... Arguments>
constexpr void launch_with_workspace(Memory<D>& memory, const For& of, const Arguments&... arguments) {
  if constexpr (requires { of.template bytes_of<PlannedKernel<Name, D>>(); }) {
    const auto workspace = Tensor<std::uint8_t, 1, D>::uninitialized(
        shape(of.template bytes_of<PlannedKernel<Name, D>>()), memory, Category::workspace, of.who);
    launch<Name, D>(memory, arguments..., kernels::Workspace{workspace.data(), workspace.count()});
  } else {
    launch<Name, D>(memory, arguments...);
  }
}

}  // namespace dspp::ops::detail
