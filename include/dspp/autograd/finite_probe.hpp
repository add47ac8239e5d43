// SPDX-License-Identifier: Apache-2.0
/// Finds the first value of a forward that is not finite.
#pragma once

#include <dspp/ops/finite.hpp>

namespace dspp {

/// Set in a Context and in the parameters' storage while a forward whose loss was not finite is repeated. Every other
/// forward has none, at the cost of a comparison with null per value.
class FiniteProbe {
 public:
  /// Records a read of a parameter.
  void use(const void* parameter) {
    if (!found_) parameter_ = parameter;
  }
  /// Checks a computed value.
  template <class T, int Rank, class D>
  void see(const Tensor<T, Rank, D>& value) {
    if (found_) return;
    ++values_;
    found_ = !ops::all_finite(value);
  }

  bool found() const { return found_; }
  /// Values computed up to the first that is not finite, that one included.
  Size values() const { return values_; }
  /// The last parameter read before it; null: none yet.
  const void* parameter() const { return parameter_; }

 private:
  const void* parameter_ = nullptr;
  Size values_ = 0;
  bool found_ = false;
};

}  // namespace dspp
