// SPDX-License-Identifier: Apache-2.0
/// The placements of a tensor over the ranks of one mesh axis, and those of its gradient.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// Every rank holds the same value and does the same work with it. Its gradient is Invariant.
struct Invariant {};

/// Every rank holds the same value and does different work with it. Its gradient is Partial.
struct Replicate {};

/// Every rank holds a summand: the value is the sum over the ranks. Its gradient is Replicate.
struct Partial {};

/// Rank r holds the r-th of equal slices along dimension Dim. Its gradient is Shard<Dim>.
///
/// Shard<Dim, Groups>: the dimension consists of Groups equal groups, one after another, and rank r holds the r-th
/// slice of each, as in a fused projection of queries, keys and values. split<Dim, Groups>(x) gives the groups, each a
/// Shard<Dim>, and join<Dim>(...) puts them together.
template <int Dim, int Groups = 1>
struct Shard {
  static_assert(Groups >= 1, "dspp: Shard<Dim, Groups> needs at least one group, but has fewer. Raise Groups.");
};

/// Rank r holds the r-th of equal slices along dimension Dim, the last ones padded: the logits of a vocabulary, whose
/// size is seldom a multiple of the degree. The variable stores the extent of the whole; the padding is finite and
/// ignored, and has gradient 0. Its gradient is PaddedShard<Dim>.
template <int Dim>
struct PaddedShard {};

template <class State>
inline constexpr bool is_padded = false;
template <int Dim>
inline constexpr bool is_padded<PaddedShard<Dim>> = true;

/// True of a Shard and of a PaddedShard.
template <class State>
inline constexpr bool is_shard = is_padded<State>;
template <int Dim, int Groups>
inline constexpr bool is_shard<Shard<Dim, Groups>> = true;

/// The dimension of a Shard, -1 for the other states.
template <class State>
inline constexpr int shard_dimension = -1;
template <int Dim, int Groups>
inline constexpr int shard_dimension<Shard<Dim, Groups>> = Dim;
template <int Dim>
inline constexpr int shard_dimension<PaddedShard<Dim>> = Dim;

/// The number of groups of a Shard, 1 for the other states.
template <class State>
inline constexpr int shard_groups = 1;
template <int Dim, int Groups>
inline constexpr int shard_groups<Shard<Dim, Groups>> = Groups;

/// True of a Shard along dimension Dim, in any groups.
template <class State, int Dim>
inline constexpr bool is_cut_along = is_shard<State>&& shard_dimension<State> == Dim;

namespace detail {
template <class State>
struct AdjointOf {
  using type = State;
};
template <>
struct AdjointOf<Replicate> {
  using type = Partial;
};
template <>
struct AdjointOf<Partial> {
  using type = Replicate;
};

template <class State, int Rank>
struct CanonicalState {
  using type = State;
};
template <int Dim, int Groups, int Rank>
struct CanonicalState<Shard<Dim, Groups>, Rank> {
  static_assert(-Rank <= Dim && Dim < Rank,
                "dspp: Shard<Dim> needs a dimension of the tensor, but the tensor has fewer. Give 0 <= Dim < rank, or "
                "a negative one that counts from the end.");
  using type = Shard<(Dim < 0 ? Dim + Rank : Dim), Groups>;
};
template <int Dim, int Rank>
struct CanonicalState<PaddedShard<Dim>, Rank> {
  using type = PaddedShard<shard_dimension<typename CanonicalState<Shard<Dim>, Rank>::type>>;
};
}  // namespace detail

/// The state of the gradient, given that of the value. An involution.
template <class State>
using adjoint = typename detail::AdjointOf<State>::type;

/// Shard<-1> of a tensor of rank 3 is Shard<2>: one type for one meaning.
template <class State, int Rank>
using canonical_state = typename detail::CanonicalState<State, Rank>::type;

}  // namespace dspp
