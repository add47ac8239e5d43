// SPDX-License-Identifier: Apache-2.0
/// A placement: the state of a tensor over each model axis, and the dimension that Cp cuts. Data, which cuts
/// dimension 0 of every batch, does not appear.
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

/// The placement of a tensor: Placed<On<Tp<2>, Shard<2>>>. Where Cp cuts one of its dimensions, such as the sequence,
/// Placed<On<Tp<2>, Shard<2>>, On<Cp<2>, Shard<1>>>. If both cut one dimension, Tp cuts the slice of a rank of Cp.
template <class... Ons>
struct Placed;

template <int Degree, class State>
struct Placed<On<Tp<Degree>, State>> {
  using tp = State;
  static constexpr int tp_degree = Degree, cp_degree = 1;
  static constexpr int cp_dimension = -1;  ///< that Cp cuts; -1: none
};

template <int Degree, class State, int Ranks, int Dim>
struct Placed<On<Tp<Degree>, State>, On<Cp<Ranks>, Shard<Dim>>> {
  static_assert(Ranks > 1 && Dim >= 0);  // one type for one meaning
  using tp = State;
  static constexpr int tp_degree = Degree, cp_degree = Ranks;
  static constexpr int cp_dimension = Dim;
};

/// The same placement with another state over Tp.
template <class Where, class State>
struct WithTp;
template <int Degree, class Old, class... Context, class State>
struct WithTp<Placed<On<Tp<Degree>, Old>, Context...>, State> {
  using type = Placed<On<Tp<Degree>, State>, Context...>;
};
template <class Where, class State>
using with_tp = typename WithTp<Where, State>::type;

/// The same placement with dimension Dim cut over Cp, where it was another; with -1 none is.
template <class Where, int Dim>
struct WithCp {
  static_assert(Dim == -1);  // the degree of Cp is not known
  using type = Where;
};
template <class OnTp, int Degree, class Old, int Dim>
struct WithCp<Placed<OnTp, On<Cp<Degree>, Old>>, Dim> {
  using type = Placed<OnTp, On<Cp<Degree>, Shard<Dim>>>;
};
template <class OnTp, int Degree, class Old>
struct WithCp<Placed<OnTp, On<Cp<Degree>, Old>>, -1> {
  using type = Placed<OnTp>;
};
template <class Where, int Dim>
using with_cp = typename WithCp<Where, Dim>::type;

/// True if Cp cuts dimension Dim of a tensor of rank Rank.
template <class Where, int Dim, int Rank>
inline constexpr bool is_cut_over_cp = Where::cp_dimension == (Dim < 0 ? Dim + Rank : Dim);

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
