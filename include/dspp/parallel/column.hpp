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
/// ColumnParallel<L, P, InGroups<3>> is several layers of equal outputs in one product, such as query, key and value:
/// each group is cut by itself, and a rank holds its slice of each.
///
/// Placement   features whole -> Shard<-1>, in groups Shard<-1, Groups>. A sequence split by SequenceParallel is
///             gathered on the way in.
/// Cost        forward: none, or an all-gather of x under SequenceParallel; backward: an all-reduce of dx, or a
///             reduce-scatter, and under RegatherInputs one more all-gather of x
/// Memory      out in / tp parameters per rank; keeps x, gathered (RegatherInputs: this rank's slice)
/// Throws      Error(placement) unless tp divides the outputs of a group; Error(usage) if LinearConfig::groups differs
///             from the type
/// Source      Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198
///
/// L is a layer template with Linear's constructors and its `affine<State>(x)`, for gelu also its `affine_gelu`.
/// ColumnParallel<L> without a policy is bound later, by Sequential.
template <template <class> class L, class... P>
struct ColumnParallel;

/// The outputs of a ColumnParallel are Groups equal groups, cut each by itself.
template <int Groups>
struct InGroups {
  static_assert(Groups >= 1, "dspp: InGroups<n> needs at least one group, but has fewer. Raise n.");
};

namespace detail {
template <template <class> class L, class P, int Groups>
struct Columns;
}

template <template <class> class L>
struct ColumnParallel<L> {
  template <class P>
  using bind = ColumnParallel<L, P>;
};
template <template <class> class L, int Groups>
struct ColumnParallel<L, InGroups<Groups>> {
  template <class P>
  using bind = ColumnParallel<L, P, InGroups<Groups>>;
};

template <template <class> class L, class P>
struct ColumnParallel<L, P> : detail::Columns<L, P, 1> {
  template <class Q>
  using on = ColumnParallel<L, Q>;
  using detail::Columns<L, P, 1>::Columns;
};
template <template <class> class L, class P, int Groups>
struct ColumnParallel<L, P, InGroups<Groups>> : detail::Columns<L, P, Groups> {
  template <class Q>
  using on = ColumnParallel<L, Q, InGroups<Groups>>;
  using detail::Columns<L, P, Groups>::Columns;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

template <template <class> class L, class P, int Groups>
struct Columns : L<P> {
  using Out = Shard<-1, Groups>;

  constexpr explicit Columns(const LinearConfig& c) : L<P>(grouped(c), Cut{1, P::tp}, Cut{1, P::tp}) {
    // clang-format off
    require((c.out / Groups) % P::tp == 0, "dspp: ColumnParallel needs outputs that the Tp degree divides, but it does not. Change out or Tp<n>, or take a Linear.", ErrorCode::placement,
            {{"out", c.out}, {"groups", Groups}, {"Tp", P::tp}});
    // clang-format on
  }
  constexpr Columns(Size in, Size out) : Columns(LinearConfig{.in = in, .out = out}) {}

  template <Tracked X>
  constexpr auto operator()(const X& x) const {
    return on_whole(
        x, [this](const auto& whole, auto... keep) { return this->template affine<Out>(whole, std::move(keep)...); });
  }
  /// gelu of it, as Linear's.
  template <Tracked X>
  constexpr auto gelu(const X& x, GeluForm form = GeluForm::tanh) const {
    return on_whole(x, [this, form](const auto& whole, auto... keep) {
      return this->template affine_gelu<Out>(whole, form, std::move(keep)...);
    });
  }

 private:
  /// f(x that is Replicate), with what keeps its slice for backward if it was gathered for that.
  template <Tracked X, class F>
  constexpr auto on_whole(const X& x, const F& f) const {
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
      return InState<X, Out>();
    else if constexpr (P::regather_inputs && is_shard<state_of<X>>)
      return f(redistribute<Replicate>(x), Regather<X>{kept(x)});
    else
      return f(redistribute<Replicate>(x));
  }

  /// The configuration with the type's number of groups.
  static constexpr LinearConfig grouped(LinearConfig c) {
    // clang-format off
    require(c.groups == 1 || c.groups == Groups, "dspp: ColumnParallel needs the groups of its type, but its configuration names others. Write ColumnParallel<Linear, P, InGroups<n>>.",
            ErrorCode::usage, {{"type", Groups}, {"configuration", c.groups}});
    // clang-format on
    c.groups = Groups;
    return c;
  }
  /// What has the value of x in backward.
  template <class X>
  constexpr auto kept(const X& x) const {
    if constexpr (requires { this->keep(x); })
      return this->keep(x);
    else
      return KeptValue<Tensor<typename X::Element, X::rank, typename X::DeviceType>>{x.value()};
  }
  /// Keeps this rank's slice of x and gathers x again for dW.
  template <class X>
  struct Regather {
    decltype(std::declval<const Columns&>().kept(std::declval<const X&>())) slice;
    constexpr auto operator()(Tape<typename X::DeviceType>& tape) const {
      return move_between<state_of<X>, Replicate>(tape.context(), slice(tape));
    }
  };
};

}  // namespace detail

}  // namespace dspp
