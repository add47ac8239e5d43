// SPDX-License-Identifier: Apache-2.0
/// A user's function of elements and its vjp, with numbers, as functors for the kernels of every device.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include <dspp/base/config.hpp>

namespace dspp::pointwise {

/// forward(x, numbers...), or forward(a, b, numbers...).
template <class Forward, std::size_t Count>
struct Custom {
  static constexpr const char* name = "custom_op";
  static constexpr double flops = 1;
  Forward forward;
  std::array<double, Count> numbers;

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

/// vjp(x, y, dy, numbers...), or vjp(a, b, y, dy, numbers...), which returns a pair. y is computed again.
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
    da = static_cast<C>(std::get<0>(both));
    db = static_cast<C>(std::get<1>(both));
  }

 private:
  template <std::size_t... I, class C, class... Rest>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr auto of(std::index_sequence<I...>, C x, Rest... rest) const {
    return vjp(x, rest..., static_cast<C>(forward.numbers[I])...);
  }
};

}  // namespace dspp::pointwise
