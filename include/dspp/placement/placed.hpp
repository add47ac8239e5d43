// SPDX-License-Identifier: Apache-2.0
/// A placement: the state of a tensor over each model axis. Batch axes do not appear (design: split by construction).
#pragma once

#include <type_traits>

#include <dspp/placement/axes.hpp>
#include <dspp/placement/state.hpp>
#include <dspp/tensor/shape.hpp>

namespace dspp {

/// One axis and the state over it, e.g. On<Tp<2>, Shard<2>>.
template <class Axis, class State>
struct On {
  using axis = Axis;
  using state = State;
};

/// The placement of a tensor over all model axes: Placed<On<Tp<2>, Shard<2>>>.
template <class... Ons>
struct Placed;

template <int Degree, class State>
struct Placed<On<Tp<Degree>, State>> {
  using tp = State;
  static constexpr int tp_degree = Degree;
};

/// The same placement with another state over Tp.
template <class Where, class State>
struct WithTp;
template <int Degree, class Old, class State>
struct WithTp<Placed<On<Tp<Degree>, Old>>, State> {
  using type = Placed<On<Tp<Degree>, State>>;
};
template <class Where, class State>
using with_tp = typename WithTp<Where, State>::type;

/// The number of pieces that a Shard cuts one by one: the product of the dimensions before it and of its groups; 1 for
/// the other states. A rank's part is [pieces, elements], the whole [pieces, ranks, elements].
template <class State, int Rank>
constexpr Size pieces_of(const Shape<Rank>& shape) {
  return is_shard<State> ? shape.product(0, shard_dimension<State>) * shard_groups<State> : 1;
}

/// Reads as: this state is one finished value (no sum is pending).
template <class State>
concept Finished = !std::is_same_v<State, Partial>;

/// Reads as: every rank holds the whole of dimension Dim of a tensor of rank Rank.
template <class State, int Dim, int Rank>
concept WholeAlong = Finished<State> && !is_cut_along<State, (Dim < 0 ? Dim + Rank : Dim)>;

}  // namespace dspp
