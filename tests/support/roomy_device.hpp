// SPDX-License-Identifier: Apache-2.0
/// As much of a device as a plan reads: its kernels are the Cpu's, but for one that takes more workspace.
#pragma once

#include <dspp/ops/layer_norm.hpp>
#include <dspp/tensor/kernel.hpp>

namespace dspp {

struct Roomy {
  static constexpr bool real = true;
  static constexpr bool synchronous = false;
  using Memory = Pool;
  using Imitated = Roomy;

  static constexpr Size more = 1 << 20;  ///< elements of the workspace of a LayerNorm's backward
};

template <class Name>
struct Kernel<Name, Roomy> : Kernel<Name, Cpu> {};
template <class T, class G>
struct Kernel<kernels::LayerNormVjp<T, G>, Roomy> {
  static constexpr Size scratch_count(Size rows, Size n) {
    return Kernel<kernels::LayerNormVjp<T, G>, Cpu>::scratch_count(rows, n) + Roomy::more;
  }
};

}  // namespace dspp
