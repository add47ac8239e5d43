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
