// SPDX-License-Identifier: Apache-2.0
/// Layers one after the other.
#pragma once

#include <tuple>
#include <utility>

#include <dspp/nn/layer.hpp>

namespace dspp {

namespace detail {
/// A layer of policy P from an argument of Sequential: a bound layer unchanged, ColumnParallel<Linear> by its `bind`.
template <class L, class P>
struct BoundTo {
  using type = L;
};
template <class L, class P>
requires requires {
  typename L::template bind<P>;
}
struct BoundTo<L, P> {
  using type = typename L::template bind<P>;
};
}  // namespace detail

/// f_n(... f_2(f_1(x))): `Sequential<P, ColumnParallel<Linear>, Gelu, RowParallel<Linear>>`.
///
/// Placement   each layer takes the output state of the one before; a pair that does not fit does not compile
template <class P, class... Layers>
struct Sequential : Layer<P> {
  template <class Q>
  using on = Sequential<Q, rebind_layer<Layers, Q>...>;

  std::tuple<typename detail::BoundTo<Layers, P>::type...> layers;

  constexpr explicit Sequential(typename detail::BoundTo<Layers, P>::type... parts) : layers(std::move(parts)...) {}

  constexpr void visit(auto&& f) { visit_from(f, std::index_sequence_for<Layers...>{}); }

  constexpr auto operator()(const Tracked auto& x) const { return apply<0>(x); }

 private:
  template <std::size_t I>
  constexpr auto apply(const auto& x) const {
    if constexpr (I == sizeof...(Layers))
      return x;
    else
      return apply<I + 1>(std::get<I>(layers)(x));
  }
  template <std::size_t... I>
  constexpr void visit_from(auto& f, std::index_sequence<I...>) {
    (f(static_cast<int>(I), std::get<I>(layers)), ...);
  }
};

}  // namespace dspp
