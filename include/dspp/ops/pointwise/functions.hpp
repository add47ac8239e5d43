// SPDX-License-Identifier: Apache-2.0
/// tanh, sigmoid, exp, log, sqrt and square, with their derivatives.
#pragma once

#include <cmath>

#include <dspp/base/config.hpp>
#include <dspp/base/math.hpp>

namespace dspp::pointwise {

struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr double flops = 4, flops_vjp = 7;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return math::tanh(x);
  }
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C derivative(C x) const {
    const C y = math::tanh(x);
    return C(1) - y * y;
  }
};

/// 1 / (1 + exp(-x)).
struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr double flops = 4, flops_vjp = 7;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return C(1) / (C(1) + math::exp(-x));
  }
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C derivative(C x) const {
    const C y = C(1) / (C(1) + math::exp(-x));
    return y * (C(1) - y);
  }
};

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr double flops = 1, flops_vjp = 2;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return math::exp(x);
  }
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C derivative(C x) const {
    return math::exp(x);
  }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr double flops = 1, flops_vjp = 2;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return math::log(x);
  }
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C derivative(C x) const {
    return C(1) / x;
  }
};

struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr double flops = 1, flops_vjp = 3;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C operator()(C x) const {
    return std::sqrt(x);
  }
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] C derivative(C x) const {
    return C(0.5) / std::sqrt(x);
  }
};

struct Square {
  static constexpr const char* name = "square";
  static constexpr double flops = 1, flops_vjp = 2;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x) const {
    return x * x;
  }
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C derivative(C x) const {
    return C(2) * x;
  }
};

}  // namespace dspp::pointwise
