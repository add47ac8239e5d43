// SPDX-License-Identifier: Apache-2.0
/// The base of every layer: its policy and the types that follow from it.
#pragma once

#include <cstdint>

#include <dspp/autograd/redistribute.hpp>
#include <dspp/nn/parameter.hpp>
#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/policy.hpp>

namespace dspp {

/// Base of every layer: `template <class P> struct Mine : Layer<P>`. A layer's constructor describes and allocates
/// nothing; `visit(f)` names its parts: `f("weight", weight); f("inner", inner);`.
template <class P>
struct Layer {
  using policy = P;
  using Element = typename P::Element;
};

template <class P>
using ElementOf = typename P::Element;

template <class P>
using DeviceOf = typename P::DeviceType;

/// A parameter of a layer of policy P.
template <class P, int Rank>
using ParameterOf = Parameter<typename P::Element, Rank, typename P::DeviceType>;

/// A value of rank Rank in `State` over Tp under policy P: of rank 2 or more, [batch, sequence, ...], of which Cp cuts
/// the sequence. WholeOverCp<Value<...>> is one that Cp does not cut.
template <class P, int Rank, class State>
using Value = Variable<typename P::Element, Rank, typename P::DeviceType,
                       typename P::template Place<canonical_state<State, Rank>, Rank>>;

/// The residual stream, [batch, sequence, width]: Invariant over Tp, or Shard<1> under SequenceParallel.
template <class P>
using Hidden = Value<P, 3, typename P::HiddenState>;

/// Token ids, [batch, sequence].
template <class P>
using Tokens = Variable<std::int32_t, 2, typename P::DeviceType, typename P::template Place<Invariant, 2>>;

namespace detail {
template <class P, int Dim>
struct InputPlace {
  using Over = On<Tp<P::tp>, Invariant>;
  using type =
      std::conditional_t<(P::cp > 1 && Dim >= 0),
                         Placed<Over, On<Cp<(P::cp > 1 ? P::cp : 2)>, Shard<(Dim < 0 ? 0 : Dim)>>>, Placed<Over>>;
};
}  // namespace detail

/// A field of a batch of your own, with elements of type T: [samples, ...], of which Cp cuts dimension Dim, if any.
/// Tokens<P> is Input<P, std::int32_t, 2, 1>.
///
///   template <class P>
///   struct Images {
///     Input<P, float, 4> pixels;         // [samples, channels, height, width]
///     Input<P, std::int32_t, 1> labels;  // [samples]
///     constexpr void visit(auto&& f) { f("pixels", pixels), f("labels", labels); }
///   };
///
/// A model with `loss(const Images<P>& batch)` trains on them. Dimension 0 of every field has the samples of this
/// rank: its share over Data, the same on the ranks of Cp and Tp. Assign a Tensor to each; loss gets them on its tape,
/// without gradients. `cast<ElementOf<P>>(batch.pixels)` has the policy's element type. A member `first_sample`, the
/// global number of the first, keys dropout; without one the samples are counted over ranks and micro-steps.
template <class P, class T, int Rank, int Dim = -1>
using Input = Variable<T, Rank, typename P::DeviceType, typename detail::InputPlace<P, Dim>::type>;

/// A loss: one number in the precision that sums are taken in.
template <class P>
using Loss =
    Variable<Compute<typename P::Element>, 0, typename P::DeviceType, typename P::template Place<Invariant, 0>>;

/// True if X is a value under policy P: of its element type, on its device, cut for its degrees.
template <class P, Tracked X>
inline constexpr bool is_value_of =
    detail::same_policy<ElementOf<P>, DeviceOf<P>, typename P::template Place<Invariant, 2>, typename X::Element,
                        typename X::DeviceType, typename X::Placement> &&
    (X::Placement::cp_degree == 1 || X::Placement::cp_degree == P::cp);

/// An error sentence unless X is a value under policy P: for layers that take any placement.
template <class P, Tracked X>
constexpr auto check_value_of() {
  detail::check_policy<ElementOf<P>, DeviceOf<P>, typename P::template Place<Invariant, 2>, typename X::Element,
                       typename X::DeviceType, typename X::Placement>();
  if constexpr (P::cp == 1) detail::check_cp_degree<X::Placement::cp_degree == 1>();
}

}  // namespace dspp
