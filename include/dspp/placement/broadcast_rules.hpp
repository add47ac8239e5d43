// SPDX-License-Identifier: Apache-2.0
/// What arithmetic asks of two values of which one repeats along dimensions, and how its result lies. Dimensions are
/// counted from the last. Each wrong combination is one error sentence.
#pragma once

#include <algorithm>
#include <type_traits>

#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
template <class State, int By>
struct ShiftedState {
  using type = State;
};
template <int Dim, int Groups, int By>
struct ShiftedState<Shard<Dim, Groups>, By> {
  using type = Shard<Dim + By, Groups>;
};
template <int Dim, int By>
struct ShiftedState<PaddedShard<Dim>, By> {
  using type = PaddedShard<Dim + By>;
};
}  // namespace detail

/// The placement of a value with By more dimensions before its first; with By below 0, fewer.
template <class Where, int By>
using shifted_placement = with_tp<with_cp<Where, (Where::cp_dimension < 0 ? -1 : Where::cp_dimension + By)>,
                                  typename detail::ShiftedState<typename Where::tp, By>::type>;

/// Two values of ranks RankA and RankB in the dimensions of a result of both. What is cut along a dimension that the
/// other value lacks needs the other to be Replicate, or not cut by Cp: each rank uses all of it with its own slice.
template <class A, int RankA, class B, int RankB>
struct Broadcast {
  static constexpr int rank = std::max(RankA, RankB);
  using Left = shifted_placement<A, rank - RankA>;
  using Right = shifted_placement<B, rank - RankB>;

 private:
  using LeftTp = typename Left::tp;
  using RightTp = typename Right::tp;
  template <class Whole, class Cut, int lacking>
  static constexpr bool repeats =
      std::is_same_v<Whole, Replicate>&& is_shard<Cut> && !is_padded<Cut> && shard_dimension<Cut> < lacking;
  static constexpr bool left = repeats<LeftTp, RightTp, rank - RankA>, right = repeats<RightTp, LeftTp, rank - RankB>;
  static constexpr bool left_of_cp =
      Left::cp_dimension < 0 && Right::cp_dimension >= 0 && Right::cp_dimension < rank - RankA;
  static constexpr bool right_of_cp =
      Right::cp_dimension < 0 && Left::cp_dimension >= 0 && Left::cp_dimension < rank - RankB;

 public:
  /// The states over Tp with the repeated one as the other's.
  using LeftState = std::conditional_t<left, RightTp, LeftTp>;
  using RightState = std::conditional_t<right, LeftTp, RightTp>;
  /// A placement of the result but for its state over Tp.
  using OverCp = std::conditional_t<left_of_cp, Right, Left>;
  static constexpr bool alike_over_cp = left_of_cp || right_of_cp || Left::cp_dimension == Right::cp_dimension;

  /// The dimensions, counted from the last, that both sides have and that ranks cut; -1: none.
  static constexpr int cut_over_tp = is_shard<LeftTp> && is_shard<RightTp> ? rank - 1 - shard_dimension<LeftTp> : -1;
  static constexpr int cut_over_cp =
      Left::cp_dimension >= 0 && Right::cp_dimension >= 0 ? rank - 1 - Left::cp_dimension : -1;
};

/// The error sentence for sequences that Cp does not cut alike.
template <class Both>
constexpr auto check_broadcast_over_cp() {
  check_cp_degrees<typename Both::Left, typename Both::Right>();
  if constexpr (!Both::alike_over_cp) check_alike_over_cp<typename Both::Left, typename Both::Right>();
}

/// The right side of a quotient.
template <class B>
constexpr auto check_divisor() {
  static_assert(Finished<B>,
                "dspp: / needs a finished divisor, but this one is Partial over Tp: its sum is still pending. "
                "redistribute<Replicate>(x) it first.");
}

/// A number added to each element of a sum that is pending would be added once per rank.
template <class A>
constexpr auto check_plus_number() {
  static_assert(
      Finished<A>,
      "dspp: + of a number needs a finished value, but this one is Partial over Tp: the number would be added once per "
      "rank. redistribute<Invariant>(x) first.");
}

/// A value that is repeated: To names the cut of a dimension along which it is, or is void.
template <class State, class To>
inline constexpr bool can_broadcast_to =
    !is_padded<State> && (std::is_void_v<To> || (std::is_same_v<State, Replicate> && is_shard<To> && !is_padded<To>));
template <class State, class To>
constexpr auto check_broadcast_to() {
  check_equal_slices<State>();
  static_assert(can_broadcast_to<State, To> || is_padded<State>,
                "dspp: broadcast_to needs a Replicate value to name the Shard<Dim> that it is repeated to, but this "
                "one is placed "
                "otherwise, or the place is no Shard<Dim>. Leave it out, or redistribute<Replicate>(x) first.");
}
namespace detail {
template <class State, class To, int Rank>
struct BroadcastState {
  using type = canonical_state<To, Rank>;
};
template <class State, int Rank>
struct BroadcastState<State, void, Rank> {
  using type = State;
};
}  // namespace detail
template <class State, class To, int Rank>
using broadcast_state = typename detail::BroadcastState<State, To, Rank>::type;

}  // namespace dspp
