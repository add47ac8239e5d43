// SPDX-License-Identifier: Apache-2.0
/// Column parallelism: a layer's outputs are split over Tp.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/nn/linear.hpp>

namespace dspp {

/// Each rank computes its own slice of the outputs of L.
///
///   y = x W^T + b       x [..., in]   W [out / tp, in] per rank   y [..., out / tp] per rank
///
/// Placement   features whole -> Shard<-1>. A sequence split by SequenceParallel is gathered on the way in.
/// Cost        forward: none, or an all-gather of x under SequenceParallel; backward: an all-reduce of dx, or a
///             reduce-scatter, and under RegatherInputs one more all-gather of x
/// Memory      out in / tp parameters per rank; keeps x, gathered (RegatherInputs: as it came)
/// Throws      Error(placement) unless tp divides out
/// Source      Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198
///
/// L is a layer template with Linear's constructors and its `affine<State>(x)`. ColumnParallel<L> without a policy is
/// bound later, by Sequential.
template <template <class> class L, class... P>
struct ColumnParallel;

template <template <class> class L>
struct ColumnParallel<L> {
  template <class P>
  using bind = ColumnParallel<L, P>;
};

template <template <class> class L, class P>
struct ColumnParallel<L, P> : L<P> {
  template <class Q>
  using on = ColumnParallel<L, Q>;

  constexpr explicit ColumnParallel(const LinearConfig& c) : L<P>(c, Cut{1, P::tp}, Cut{1, P::tp}) {
    // clang-format off
    require((c.out / c.groups) % P::tp == 0, "dspp: ColumnParallel needs outputs that the Tp degree divides, but it does not. Change out or Tp<n>.", ErrorCode::placement, {{"out", c.out}, {"groups", c.groups}, {"Tp", P::tp}});
    // clang-format on
  }
  constexpr ColumnParallel(Size in, Size out) : ColumnParallel(LinearConfig{.in = in, .out = out}) {}

  template <Tracked X>
  constexpr auto operator()(const X& x) const {
    constexpr bool whole = WholeAlong<state_of<X>, -1, X::rank>;
    check_value_of<P, X>();
    static_assert(
        !std::is_same_v<state_of<X>, Partial>,
        "dspp: ColumnParallel needs a finished input, but this one is Partial over Tp: its sum is still pending. "
        "redistribute<Invariant>(x) first.");
    static_assert(
        whole || std::is_same_v<state_of<X>, Partial>,
        "dspp: ColumnParallel needs an input that is whole along its features, but this one is split along them over "
        "Tp. Put a RowParallel between them, or redistribute<Invariant>(x) first.");
    if constexpr (!whole || !is_value_of<P, X>)
      return InState<X, Shard<-1>>();
    else if constexpr (P::regather_inputs && is_shard<state_of<X>>)
      return this->template affine<Shard<-1>>(redistribute<Replicate>(x), Regather<X>{x.value()});
    else
      return this->template affine<Shard<-1>>(redistribute<Replicate>(x));
  }

 private:
  /// Keeps this rank's slice of x and gathers the whole again for dW.
  template <class X>
  struct Regather {
    Tensor<typename X::Element, X::rank, typename X::DeviceType> slice;
    constexpr auto operator()(Tape<typename X::DeviceType>& tape) const {
      return move_between<state_of<X>, Replicate>(tape.context(), slice);
    }
  };
};

}  // namespace dspp
