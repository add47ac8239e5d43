// SPDX-License-Identifier: Apache-2.0
/// The names of variables on a tape, and what a tape tells of some.
#pragma once

#include <cstdint>

#include <dspp/ops/gelu_form.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// Identifies the gradient of one variable: its tape, the tape's pass, and a number in the pass.
struct Slot {
  static constexpr int none = -1;       ///< of a constant: takes no gradient
  static constexpr int rehearsed = -2;  ///< of a value computed during rehearse(): must not be used outside
  int number = none;
  int kind = 0;            ///< of value and gradient: index in the tape's list, or on paper its digest
  std::uint64_t pass = 0;  ///< unique among the passes over one Memory
  const void* tape = nullptr;

  constexpr bool takes_gradient() const { return number != none; }
};

/// What the derivative of y = gelu(x) needs: x, as y lies, and its slot.
template <Device D>
struct GeluArgument {
  Slot slot;
  GeluForm form = GeluForm::exact;
  Storage<Memory<D>> storage;
  Size offset = 0;
};

/// How a value that is not kept comes back in backward.
struct Recomputation {
  bool exists = false;
  const void* home = nullptr;  ///< the unit of the parameters that it reads; null: it reads none

  /// Whether the backward of an operation with parameters in `other` may ask for it.
  constexpr bool serves(const void* other) const { return exists && (home == nullptr || home == other); }
};

}  // namespace dspp
