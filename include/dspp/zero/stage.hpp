// SPDX-License-Identifier: Apache-2.0
/// A ZeRO stage is an arrow and two lifetimes.
#pragma once

#include <type_traits>

#include <dspp/placement/arrow.hpp>

namespace dspp {

/// The lifetime of a unit's gathered values or unreduced gradients.
enum class Lifetime {
  always,
  until_step,    ///< from one optimizer step to the next
  until_bucket,  ///< until the last gradient of the bucket is written
  one_use,       ///< one pass through the unit, forward or backward
};

/// The arrow starts at the placement of moments and masters and ends at Replicate, the placement of parameters in the
/// computation. Its backward reduces the gradients: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.
template <int Stage>
struct StageArrow {
  using From = std::conditional_t<Stage == 0, Invariant, Shard<0>>;
  using To = Replicate;
  static constexpr Move fetch = arrow<From, To>;            ///< nothing | all-gather
  static constexpr Move reduce = backward_arrow<From, To>;  ///< all-reduce | reduce-scatter
  static constexpr Lifetime values = Stage == 3   ? Lifetime::one_use
                                     : Stage == 0 ? Lifetime::always
                                                  : Lifetime::until_step;
  static constexpr Lifetime gradients = Stage >= 2 ? Lifetime::until_bucket : Lifetime::until_step;
};

static_assert(StageArrow<0>::fetch == Move::none && StageArrow<0>::reduce == Move::all_reduce);
static_assert(StageArrow<3>::fetch == Move::all_gather && StageArrow<3>::reduce == Move::reduce_scatter);

/// The same as run-time values, so that units are not instantiated per stage.
struct StageRule {
  Move reduce = Move::all_reduce;
  Lifetime values = Lifetime::always, gradients = Lifetime::until_step;

  constexpr bool optimizer_is_split() const { return reduce == Move::reduce_scatter; }
  constexpr bool values_are_split() const { return values == Lifetime::one_use; }
};

template <int Stage>
inline constexpr StageRule stage_rule{StageArrow<Stage>::reduce, StageArrow<Stage>::values,
                                      StageArrow<Stage>::gradients};

}  // namespace dspp
