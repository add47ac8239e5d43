// SPDX-License-Identifier: Apache-2.0
/// From all positions of a sequence to those of a rank along Cp.
#pragma once

#include <utility>

#include <dspp/autograd/move.hpp>
#include <dspp/nn/layer.hpp>

namespace dspp {

namespace detail {
template <class Y, class T, int Rank, Device D>
constexpr auto own_positions_backward(Slot slot) {
  return [slot](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    using Slices = Shard<Y::Placement::cp_dimension>;
    tape.give(slot, move_over<Slices, Partial>(cp_ranks<typename Y::Placement>(tape.context()), std::move(dy)));
  };
}
}  // namespace detail

/// This rank's positions of a value that Cp does not cut, such as the patches of images: the slice along dimension 1.
/// The inverse of redistribute<Replicate, Axis::Cp>(x). Where policy P has no Cp, x itself.
///
///   x [batch, sequence, ...] -> [batch, sequence / cp, ...]
///
/// Placement   over Tp any that does not cut the sequence, kept. The gradient of x is this rank's part: what is
///             computed alike on every rank needs no more, since the replicas sum gradients of parameters over Cp.
/// Memory      the slice; in backward a dx of zeros around it
/// Throws      Error(shape) if the ranks do not divide the sequence
template <class P, Tracked X>
constexpr auto own_positions(const X& x) {
  check_value_of<P, X>();
  constexpr bool whole = X::Placement::cp_dimension < 0 && X::rank >= 2 && !is_cut_along<state_of<X>, 1>;
  static_assert(
      whole || P::cp == 1,
      "dspp: own_positions needs [batch, sequence, ...] with the sequence whole, but Cp or Tp cuts this value. "
      "redistribute<Shard<1>>(x) after it, not before.");
  if constexpr (P::cp == 1 || !whole || !is_value_of<P, X>) {
    return x;
  } else {
    using T = typename X::Element;
    using D = typename X::DeviceType;
    using Y = Value<P, X::rank, state_of<X>>;
    auto& ranks = detail::cp_ranks<typename Y::Placement>(x.tape().context());
    Y y(move_over<Replicate, Shard<1>>(ranks, x.value()), x);
    y.on_backward(detail::own_positions_backward<Y, T, X::rank, D>(x.slot()));
    return y;
  }
}

}  // namespace dspp
