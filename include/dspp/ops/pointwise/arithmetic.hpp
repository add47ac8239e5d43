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

}  // namespace dspp::pointwise
