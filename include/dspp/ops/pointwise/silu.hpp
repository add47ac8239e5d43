// SPDX-License-Identifier: Apache-2.0
/// silu(x) = x / (1 + exp(-x)), and its derivative.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/base/math.hpp>

namespace dspp::pointwise {

/// Source   Elfwing, Uchibe, Doya 2017, Sigmoid-Weighted Linear Units
struct Silu {
  static constexpr const char* name = "silu";
  static constexpr double flops = 4, flops_vjp = 8;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return x / (C(1) + math::exp(-x));
  }
  /// s (1 + x (1 - s)) with s the logistic function of x.
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C derivative(C x) const {
    const C e = math::exp(-x);
    const C s = C(1) / (C(1) + e);
    return s + x * s * (C(1) - s);
  }
};

}  // namespace dspp::pointwise
