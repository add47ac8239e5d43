// SPDX-License-Identifier: Apache-2.0
/// A layer whose parameters form a unit, with the unit's boundaries around its forward.
#pragma once

#include <utility>

#include <dspp/nn/layer.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

/// L in a unit. Stack wraps each block, the engine the whole model: parameters outside inner units belong to the
/// model's unit, the root unit.
///
/// Names are those of L: the wrapper adds none.
template <class L>
struct InUnit : Layer<typename L::policy> {
  using P = typename L::policy;
  template <class Q>
  using on = InUnit<rebind<L, typename Q::DeviceType>>;

  using OwnUnit = Unit<typename P::Element, typename P::DeviceType>;

  L inner;
  OwnUnit unit;

  constexpr explicit InUnit(L layer) : inner(std::move(layer)) {}

  constexpr void visit(auto&& f) {
    boundary_ = &unit;
    unit.set_bounded();
    visit_inner(inner, f);
  }
  constexpr void describe(auto&& f) const requires requires { inner.describe(f); }
  { inner.describe(f); }

  template <Tracked X, class... Extras>
  constexpr auto operator()(const X& x, const Extras&... extras) const {
    return within(x.tape(), [&] { return inner(x, extras...); });
  }

  /// `forward()` between the unit's boundaries.
  constexpr auto within(Tape<typename P::DeviceType>& tape, auto&& forward) const {
    if (boundary_) boundary_->enter(tape);
    auto y = forward();
    if (boundary_) boundary_->leave(tape);
    return y;
  }

 private:
  OwnUnit* boundary_ = nullptr;  // set to `unit` by visit(): forward is const, and opens it
};

}  // namespace dspp
