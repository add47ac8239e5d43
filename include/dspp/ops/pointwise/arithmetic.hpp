// SPDX-License-Identifier: Apache-2.0
/// Sums and products of elements: functors for the kernels of every device.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp::pointwise {

struct Identity {
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x) const {
    return x;
  }
};

struct Add {
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, C y) const {
    return x + y;
  }
};

struct Multiply {
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, C y) const {
    return x * y;
  }
};

struct Subtract {
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, C y) const {
    return x - y;
  }
};

struct Divide {
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, C y) const {
    return x / y;
  }
};

/// The vjp of F: f'(x) dy.
template <class F>
struct Vjp {
  F f;
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, C dy) const {
    return f.derivative(x) * dy;
  }
};

template <class C>
struct Scale {
  C factor;
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x) const { return x * factor; }
};

/// factor x + number, rounded after the product unless the compiler fuses both.
template <class C>
struct Affine {
  static constexpr const char* name = "affine";
  static constexpr double flops = 2;
  C factor, number;
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x) const { return factor * x + number; }
};

/// x / divisor.
template <class C>
struct DivideBy {
  static constexpr const char* name = "divide";
  static constexpr double flops = 1;
  C divisor;
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x) const { return x / divisor; }
};

/// dividend / x.
template <class C>
struct DivideInto {
  static constexpr const char* name = "divide";
  static constexpr double flops = 1, flops_vjp = 4;
  C dividend;
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x) const { return dividend / x; }
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C derivative(C x) const { return -(dividend / x) / x; }
};

}  // namespace dspp::pointwise
