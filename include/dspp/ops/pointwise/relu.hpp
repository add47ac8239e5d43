// SPDX-License-Identifier: Apache-2.0
/// relu(x) = max(x, 0), and its derivative. NaN stays NaN.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp::pointwise {

struct Relu {
  static constexpr const char* name = "relu";
  static constexpr double flops = 1, flops_vjp = 1;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x) const {
    return x < C(0) ? C(0) : x;
  }
  /// 0 at 0, as PyTorch has it.
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C derivative(C x) const {
    return x <= C(0) ? C(0) : C(1);
  }
};

}  // namespace dspp::pointwise
