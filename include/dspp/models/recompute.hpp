// SPDX-License-Identifier: Apache-2.0
/// A layer that keeps only its input and runs again in backward.
#pragma once

#include <utility>

#include <dspp/autograd/recompute.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/nn/walk.hpp>

namespace dspp {

/// L, computed twice: Recompute<Block<P>>.
///
/// Cost     one more forward of L in backward, its collectives over Tp included; no more gathers under Zero<3>, except
///          those of tiles and units inside
/// Memory   keeps x instead of what L saves
/// Source   Chen et al. 2016, arXiv:1604.06174
template <class L>
struct Recompute : Layer<typename L::policy> {
  template <class Q>
  using on = Recompute<rebind<L, typename Q::DeviceType>>;

  L inner;

  constexpr explicit Recompute(L layer) : inner(std::move(layer)) {}
  template <class... Config>
  requires std::is_constructible_v<L, const Config&...>
  constexpr explicit Recompute(const Config&... config) : inner(config...) {}

  constexpr void visit(auto&& f) { visit_inner(inner, f); }
  constexpr void describe(auto&& f) const requires requires { inner.describe(f); }
  { inner.describe(f); }
  constexpr auto operator()(const Tracked auto& x) const { return recompute(inner, x); }
  /// What follows x is kept, not computed again.
  template <class... Extras>
  constexpr auto operator()(const Tracked auto& x, const Extras&... extras) const {
    return recompute([this, extras...](const auto& again) { return inner(again, extras...); }, x);
  }
};

}  // namespace dspp
