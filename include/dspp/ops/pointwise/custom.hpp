// SPDX-License-Identifier: Apache-2.0
/// A user's function of elements and its vjp, with numbers, as functors for the kernels of every device.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include <dspp/base/config.hpp>

namespace dspp {

/// The gradients of two elements, which the vjp of a custom_op may return. A GPU cannot make a std::pair.
template <class C>
struct TwoGradients {
  C first, second;
};
template <class C>
TwoGradients(C, C) -> TwoGradients<C>;

namespace pointwise {

/// forward(x, numbers...), or forward(a, b, numbers...).
template <class Forward, std::size_t Count>
struct Custom {
  static constexpr const char* name = "custom_op";
  static constexpr double flops = 1;
  Forward forward;
  double numbers[Count > 0 ? Count : 1];

  template <class C, class... Rest>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, Rest... rest) const {
    return of(std::make_index_sequence<Count>(), x, rest...);
  }

 private:
  template <std::size_t... I, class C, class... Rest>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C of(std::index_sequence<I...>, C x, Rest... rest) const {
    return static_cast<C>(forward(x, rest..., static_cast<C>(numbers[I])...));
  }
};

/// The first of two numbers, without a call of the host's library where they are members.
template <class Both>
DSPP_HOST_DEVICE constexpr auto first_of(const Both& both) {
  if constexpr (requires { both.first; })
    return both.first;
  else
    return std::get<0>(both);
}
template <class Both>
DSPP_HOST_DEVICE constexpr auto second_of(const Both& both) {
  if constexpr (requires { both.second; })
    return both.second;
  else
    return std::get<1>(both);
}

/// vjp(x, y, dy, numbers...), or vjp(a, b, y, dy, numbers...), which returns two. y is computed again.
template <class Forward, class Vjp, std::size_t Count>
struct CustomVjp {
  static constexpr double flops = 2;
  Custom<Forward, Count> forward;
  Vjp vjp;

  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, C dy) const {
    return static_cast<C>(of(std::make_index_sequence<Count>(), x, forward(x), dy));
  }
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr void operator()(C a, C b, C dy, C& da, C& db) const {
    const auto both = of(std::make_index_sequence<Count>(), a, b, forward(a, b), dy);
    da = static_cast<C>(first_of(both));
    db = static_cast<C>(second_of(both));
  }

 private:
  template <std::size_t... I, class C, class... Rest>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr auto of(std::index_sequence<I...>, C x, Rest... rest) const {
    return vjp(x, rest..., static_cast<C>(forward.numbers[I])...);
  }
};

}  // namespace pointwise

}  // namespace dspp
