// SPDX-License-Identifier: Apache-2.0
/// Watches a forward for the first value that is not finite.
#pragma once

#include <dspp/ops/finite.hpp>

namespace dspp {

/// Set in a Context and in the homes of the parameters while a forward is repeated whose loss was not finite. Every
/// other forward has none, and costs a comparison with null for each value.
class FiniteProbe {
 public:
  /// A parameter's values are asked for.
  void use(const void* parameter) {
    if (!found_) parameter_ = parameter;
  }
  /// A value is computed.
  template <class T, int Rank, class D>
  void see(const Tensor<T, Rank, D>& value) {
    if (found_) return;
    ++values_;
    found_ = !ops::all_finite(value);
  }

  bool found() const { return found_; }
  /// Computed up to the first that is not finite, that one included.
  Size values() const { return values_; }
  /// Used last before it; null: none yet.
  const void* parameter() const { return parameter_; }

 private:
  const void* parameter_ = nullptr;
  Size values_ = 0;
  bool found_ = false;
};

}  // namespace dspp
