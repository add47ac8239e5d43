// SPDX-License-Identifier: Apache-2.0
/// The moves between states, and the collective each one costs. The backward of a move is the same table read the other
/// way.
#pragma once

#include <type_traits>

#include <dspp/placement/state.hpp>

namespace dspp {

/// What a rank does to move a value from one state to another.
enum class Move {
  none,            ///< only the meaning of the bits changes
  all_reduce,      ///< sum over the ranks, to every rank
  reduce_scatter,  ///< sum over the ranks, a slice to each
  all_gather,      ///< the slices of all ranks, to every rank
  all_to_all,      ///< slices along one dimension to slices along another
  slice,           ///< keep this rank's slice
  pad_with_zeros,  ///< this rank's slice inside zeros
  forbidden,
};

/// The table of design section 3. `arrow<From, To>` is the move; Move::forbidden where there is none.
template <class From, class To>
inline constexpr Move arrow = std::is_same_v<From, To> ? Move::none : Move::forbidden;

template <>
inline constexpr Move arrow<Invariant, Replicate> = Move::none;  // Megatron's f
template <>
inline constexpr Move arrow<Partial, Invariant> = Move::all_reduce;  // Megatron's g
template <>
inline constexpr Move arrow<Partial, Replicate> = Move::all_reduce;
template <int D, int G>
inline constexpr Move arrow<Invariant, Shard<D, G>> = Move::slice;
template <int D, int G>
inline constexpr Move arrow<Replicate, Shard<D, G>> = Move::slice;
template <int D, int G>
inline constexpr Move arrow<Shard<D, G>, Invariant> = Move::all_gather;
template <int D, int G>
inline constexpr Move arrow<Shard<D, G>, Replicate> = Move::all_gather;
template <int D, int G>
inline constexpr Move arrow<Partial, Shard<D, G>> = Move::reduce_scatter;
template <int D, int G, int E, int H>  // Ulysses, experts
inline constexpr Move arrow<Shard<D, G>, Shard<E, H>> = D != E   ? Move::all_to_all
                                                        : G == H ? Move::none
                                                                 : Move::forbidden;
template <int D, int G>
inline constexpr Move arrow<Shard<D, G>, Partial> = Move::pad_with_zeros;  // only in backward
template <int D>
inline constexpr Move arrow<PaddedShard<D>, Invariant> = Move::all_gather;  // without the padding
template <int D>
inline constexpr Move arrow<PaddedShard<D>, Replicate> = Move::all_gather;
template <int D>
inline constexpr Move arrow<Invariant, PaddedShard<D>> = Move::slice;  // these two only in backward
template <int D>
inline constexpr Move arrow<Partial, PaddedShard<D>> = Move::reduce_scatter;

/// The move of the gradient: from the adjoint of To to the adjoint of From.
template <class From, class To>
inline constexpr Move backward_arrow = arrow<adjoint<To>, adjoint<From>>;

static_assert(backward_arrow<Invariant, Replicate> == Move::all_reduce);
static_assert(backward_arrow<Partial, Invariant> == Move::none);
static_assert(backward_arrow<Shard<1>, Replicate> == Move::reduce_scatter);
static_assert(backward_arrow<Partial, Shard<1>> == Move::all_gather);
static_assert(arrow<Shard<1>, Shard<1>> == Move::none);
static_assert(backward_arrow<Shard<1>, Shard<2>> == Move::all_to_all);
static_assert(backward_arrow<Replicate, Shard<0>> == Move::pad_with_zeros);
static_assert(backward_arrow<PaddedShard<1>, Replicate> == Move::reduce_scatter);
static_assert(arrow<Shard<1, 2>, Replicate> == Move::all_gather);
static_assert(arrow<Shard<1, 2>, Shard<1>> == Move::forbidden);

}  // namespace dspp
