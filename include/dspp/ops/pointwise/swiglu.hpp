// SPDX-License-Identifier: Apache-2.0
/// silu(a) b, and its derivatives.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/base/math.hpp>

namespace dspp::pointwise {

/// Source   Shazeer 2020, GLU Variants Improve Transformer
struct Swiglu {
  static constexpr double flops = 5, flops_vjp = 13;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C a, C b) const {
    return a / (C(1) + math::exp(-a)) * b;
  }
  /// dy times both derivatives: s (1 + a (1 - s)) b and a s, s the logistic function of a.
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] void derivatives(C a, C b, C dy, C& da, C& db) const {
    const C s = C(1) / (C(1) + math::exp(-a));
    const C silu = a * s;
    da = dy * b * (s + silu * (C(1) - s));
    db = dy * silu;
  }
};

}  // namespace dspp::pointwise
