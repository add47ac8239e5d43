// SPDX-License-Identifier: Apache-2.0
/// Both forms of gelu, and their derivatives.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/base/math.hpp>

namespace dspp::pointwise {

/// x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2.
///
/// Source   Hendrycks and Gimpel 2016, Gaussian Error Linear Units, section 2
struct GeluExact {
  static constexpr const char* name = "gelu";
  static constexpr double flops = 8, flops_vjp = 14;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return x * distribution(x);
  }
  /// Phi(x) + x phi(x), phi the density.
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C derivative(C x) const {
    const C density = C(0.3989422804014327) * math::exp(C(-0.5) * x * x);
    return distribution(x) + x * density;
  }

 private:
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] static C distribution(C x) {
    return C(0.5) + C(0.5) * math::erf(C(0.7071067811865476) * x);
  }
};

/// x (1 + tanh u) / 2, u = sqrt(2/pi) (x + 0.044715 x^3), computed as x / (1 + exp(-2u)).
///
/// Source   Hendrycks and Gimpel 2016, section 2; GPT-2's gelu
struct GeluTanh {
  static constexpr const char* name = "gelu";
  static constexpr double flops = 8, flops_vjp = 14;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return x / (C(1) + math::exp(minus_two_u(x)));
  }
  /// s + 2 x u' s (1 - s) with s = 1 / (1 + exp(-2u)).
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C derivative(C x) const {
    const C s = C(1) / (C(1) + math::exp(minus_two_u(x)));
    return s + x * (C(slope) + C(3 * cubic) * x * x) * s * (C(1) - s);
  }

 private:
  static constexpr double slope = 1.5957691216057308;  // 2 sqrt(2/pi)
  static constexpr double cubic = slope * 0.044715;
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] static C minus_two_u(C x) {
    return -x * (C(slope) + C(cubic) * x * x);
  }
};

}  // namespace dspp::pointwise
