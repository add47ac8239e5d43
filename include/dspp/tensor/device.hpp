// SPDX-License-Identifier: Apache-2.0
/// Devices: where a tensor's elements are, and what takes the place of memory there.
#pragma once

#include <concepts>

#include <dspp/tensor/ledger.hpp>
#include <dspp/tensor/pool.hpp>

namespace dspp {

/// The host: elements are in a Pool.
struct Cpu {
  static constexpr bool real = true;
  using Memory = Pool;
  using Imitated = Cpu;
};

/// Paper: tensors have a shape, a type and a place, and no data; a Ledger keeps the books. Works in constant
/// expressions.
struct Meta {
  static constexpr bool real = false;
  using Memory = Ledger;
  using Imitated = Cpu;  ///< whose workspaces are counted
};

template <class D>
concept Device = requires {
  { D::real } -> std::convertible_to<bool>;
  typename D::Memory;
};

template <class D>
using Memory = typename D::Memory;

}  // namespace dspp
