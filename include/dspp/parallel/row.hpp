// SPDX-License-Identifier: Apache-2.0
/// Row parallelism: a layer's inputs are split over Tp.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/nn/linear.hpp>

namespace dspp {

/// Each rank contracts its own slice of the inputs of L; the sum over the ranks is the result.
///
///   y = x W^T + b       x [..., in / tp] per rank   W [out, in / tp] per rank   b [out]   y [..., out]
///
/// Placement   Shard<-1>, in one group -> the residual stream's: Invariant, or Shard<1> under SequenceParallel
/// Cost        forward: an all-reduce of y, or a reduce-scatter under SequenceParallel; backward: none, or an
///             all-gather of dy
/// Memory      out in / tp + out parameters per rank; keeps x
/// Throws      Error(placement) unless tp divides in
/// Source      Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198
template <template <class> class L, class... P>
struct RowParallel;

template <template <class> class L>
struct RowParallel<L> {
  template <class P>
  using bind = RowParallel<L, P>;
};

template <template <class> class L, class P>
struct RowParallel<L, P> : L<P> {
  template <class Q>
  using on = RowParallel<L, Q>;

  constexpr explicit RowParallel(const LinearConfig& c) : L<P>(c, Cut{2, P::tp}, Cut{}) {
    // clang-format off
    require(c.in % P::tp == 0, "dspp: RowParallel needs inputs that the Tp degree divides, but it does not. Change in or Tp<n>.", ErrorCode::placement, {{"in", c.in}, {"Tp", P::tp}});
    // clang-format on
  }
  constexpr RowParallel(Size in, Size out) : RowParallel(LinearConfig{.in = in, .out = out}) {}

  template <Tracked X>
  constexpr auto operator()(const X& x) const {
    using To = typename P::HiddenState;
    constexpr bool split = std::is_same_v<state_of<X>, Shard<X::rank - 1>>;
    check_value_of<P, X>();
    constexpr bool grouped = !split && is_cut_along<state_of<X>, X::rank - 1>;
    static_assert(
        !grouped,
        "dspp: RowParallel needs an input split along its features in one piece, but this one is split in groups over "
        "Tp: a rank holds other rows. split<-1, Groups>(x) gives the groups, or take ColumnParallel without InGroups.");
    static_assert(
        split || grouped,
        "dspp: RowParallel needs an input split along its features over Tp, but this one is whole or Partial. Put a "
        "ColumnParallel before it, or redistribute<Shard<-1>>(x) first.");
    if constexpr (!split || !is_value_of<P, X>)
      return InState<X, To>();
    else if constexpr (P::tp == 1 && !P::sequence_parallel)
      return this->template affine<To>(x);  // a group of one: the sum is there, and the bias joins the product
    else
      return this->shift(redistribute<To>(this->template times<Partial>(x)));
  }
};

}  // namespace dspp
