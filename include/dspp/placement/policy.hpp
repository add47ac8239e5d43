// SPDX-License-Identifier: Apache-2.0
/// A strategy as a type: Policy<Zero<2>, Bf16, Tp<2>, SequenceParallel>. Name only what differs from the default.
#pragma once

#include <type_traits>

#include <dspp/mesh/axis.hpp>
#include <dspp/placement/axes.hpp>
#include <dspp/placement/placed.hpp>
#include <dspp/placement/policy_members.hpp>
#include <dspp/tensor/device.hpp>

namespace dspp {

/// What a policy's members say; what they do not name has its default. The canonical form of a policy, which
/// Policy<...> makes and checks, names its ZeRO stage, its precision and what else differs from the default, in one
/// order, so that equal policies are one type.
template <class... Members>
struct Strategy {
  using ZeroStage = detail::pick<detail::Role::zero, Zero<0>, Members...>;
  using Precision = detail::pick<detail::Role::precision, F32, Members...>;
  using GradientChoice = detail::pick<detail::Role::gradients, Gradients<ByUse>, Members...>;
  using ShardsChoice = detail::pick<detail::Role::shards, detail::Unnamed, Members...>;
  using SecondaryChoice = detail::pick<detail::Role::secondary, detail::Unnamed, Members...>;
  using GatherChoice = detail::pick<detail::Role::gather, detail::Unnamed, Members...>;
  using ReduceChoice = detail::pick<detail::Role::reduce, detail::Unnamed, Members...>;
  using OverlapChoice = detail::pick<detail::Role::overlap, detail::Unnamed, Members...>;
  using TensorAxis = detail::pick<detail::Role::tp, Tp<1>, Members...>;
  using PipelineAxis = detail::pick<detail::Role::pp, Pp<1>, Members...>;
  using ContextAxis = detail::pick<detail::Role::cp, Cp<1>, Members...>;
  using ExpertAxis = detail::pick<detail::Role::ep, Ep<1>, Members...>;
  using Sequence = detail::pick<detail::Role::sequence, NoSequenceParallel, Members...>;
  using Inputs = detail::pick<detail::Role::inputs, KeepInputs, Members...>;
  using Attention = detail::pick<detail::Role::attention, AttentionBy<Fastest>, Members...>;
  using OffloadChoice = detail::pick<detail::Role::offload, detail::Unnamed, Members...>;
  using ParameterOffloadChoice = detail::pick<detail::Role::offload_parameters, detail::Unnamed, Members...>;
  using ActivationOffloadChoice = detail::pick<detail::Role::offload_activations, detail::Unnamed, Members...>;
  using PartitionChoice = detail::pick<detail::Role::partition, detail::Unnamed, Members...>;
  using NormChoice = detail::pick<detail::Role::norms, detail::Unnamed, Members...>;
  using FunctionChoice = detail::pick<detail::Role::functions, detail::Unnamed, Members...>;
  using DelayChoice = detail::pick<detail::Role::delay, detail::Unnamed, Members...>;
  using DeviceType = detail::pick<detail::Role::device, Cpu, Members...>;

  using Element = typename Precision::Element;
  static constexpr int zero_stage = ZeroStage::stage;
  static constexpr Degrees degrees{.pp = PipelineAxis::degree, .cp = ContextAxis::degree, .tp = TensorAxis::degree};
  static constexpr int tp = degrees.tp;
  static constexpr int cp = degrees.cp;
  static constexpr bool sequence_parallel = std::is_same_v<Sequence, SequenceParallel>;
  static constexpr bool regather_inputs = std::is_same_v<Inputs, RegatherInputs>;
  static constexpr AttentionKernels attention_by = detail::KernelsOf<Attention>::type::attention;
  static constexpr Tier optimizer_tier = detail::TierOf<OffloadChoice>::tier;
  static constexpr Tier parameter_tier = detail::TierOf<ParameterOffloadChoice>::tier;
  static constexpr Tier activation_tier = detail::TierOf<ActivationOffloadChoice>::tier;
  static constexpr bool partitions_activations = std::is_same_v<PartitionChoice, PartitionActivations>;
  static constexpr bool recomputes_norms = !std::is_same_v<NormChoice, detail::Unnamed>;
  static constexpr bool recomputes_functions = !std::is_same_v<FunctionChoice, detail::Unnamed>;
  static constexpr bool speculates = std::is_same_v<DelayChoice, Speculative>;
  static constexpr bool selects_rows = std::is_same_v<DelayChoice, ZenFlow>;
  static constexpr bool delays_updates = !speculates && !selects_rows && !std::is_same_v<DelayChoice, detail::Unnamed>;
  static constexpr ReplicaTraffic replica_traffic{.shards_within_node = !std::is_same_v<ShardsChoice, detail::Unnamed>,
                                                  .secondary_shards = !std::is_same_v<SecondaryChoice, detail::Unnamed>,
                                                  .gather_bits = detail::bits_of<GatherChoice>,
                                                  .reduce_bits = detail::bits_of<ReduceChoice>,
                                                  .feeds_errors_back = detail::feeds_back<ReduceChoice>,
                                                  .overlaps = std::is_same_v<OverlapChoice, detail::Unnamed>};

  /// The state of the residual stream, [batch, sequence, width], over Tp.
  using HiddenState = std::conditional_t<sequence_parallel, Shard<1>, Invariant>;
  /// Of a value of rank Rank: Cp cuts [batch, sequence, ...] along the sequence.
  template <class State, int Rank>
  using Place = std::conditional_t<(cp > 1 && Rank >= 2), Placed<On<TensorAxis, State>, On<ContextAxis, Shard<1>>>,
                                   Placed<On<TensorAxis, State>>>;
};

namespace detail {

/// A member of a policy, which a Strategy names unless it is the default.
template <class Default, class Member>
struct Choice {};
template <class Named, class... Choices>
struct Shortest {
  using type = Named;
};
template <class... Named, class Default, class Member, class... Rest>
struct Shortest<Strategy<Named...>, Choice<Default, Member>, Rest...> {
  using Next = std::conditional_t<std::is_same_v<Default, Member>, Strategy<Named...>, Strategy<Named..., Member>>;
  using type = typename Shortest<Next, Rest...>::type;
};

using Defaults = Strategy<>;
/// What of a policy layers do not depend on, and engines take as values.
template <class S>
struct States {
  using ZeroStage = typename S::ZeroStage;
  using Gradient = typename S::GradientChoice;
  using Sharding = typename S::ShardsChoice;
  using Secondary = typename S::SecondaryChoice;
  using Gather = typename S::GatherChoice;
  using Reduce = typename S::ReduceChoice;
  using Overlapping = typename S::OverlapChoice;
  using Offloaded = typename S::OffloadChoice;
  using OffloadedParameters = typename S::ParameterOffloadChoice;
  using OffloadedActivations = typename S::ActivationOffloadChoice;
  using Partition = typename S::PartitionChoice;
  using Delay = typename S::DelayChoice;
};
/// The canonical form of S, on another device, with the states of another.
template <class S, Device D, class Of = States<S>>
using strategy_of = typename Shortest<
    Strategy<typename Of::ZeroStage, typename S::Precision>, Choice<Defaults::GradientChoice, typename Of::Gradient>,
    Choice<Defaults::ShardsChoice, typename Of::Sharding>, Choice<Defaults::SecondaryChoice, typename Of::Secondary>,
    Choice<Defaults::GatherChoice, typename Of::Gather>, Choice<Defaults::ReduceChoice, typename Of::Reduce>,
    Choice<Defaults::OverlapChoice, typename Of::Overlapping>, Choice<Defaults::TensorAxis, typename S::TensorAxis>,
    Choice<Defaults::PipelineAxis, typename S::PipelineAxis>, Choice<Defaults::ContextAxis, typename S::ContextAxis>,
    Choice<Defaults::ExpertAxis, typename S::ExpertAxis>, Choice<Defaults::Sequence, typename S::Sequence>,
    Choice<Defaults::Inputs, typename S::Inputs>, Choice<Defaults::Attention, typename S::Attention>,
    Choice<Defaults::OffloadChoice, typename Of::Offloaded>,
    Choice<Defaults::ParameterOffloadChoice, typename Of::OffloadedParameters>,
    Choice<Defaults::ActivationOffloadChoice, typename Of::OffloadedActivations>,
    Choice<Defaults::PartitionChoice, typename Of::Partition>, Choice<Defaults::NormChoice, typename S::NormChoice>,
    Choice<Defaults::FunctionChoice, typename S::FunctionChoice>, Choice<Defaults::DelayChoice, typename Of::Delay>,
    Choice<Defaults::DeviceType, D>>::type;
/// Plans take those as values, so that strategies that differ only in them share one model on paper.
template <class S, Device D>
using strategy_on_paper = strategy_of<S, D, States<Defaults>>;

template <class Gradient, class Precision>
inline constexpr bool gradients_fit = std::is_same_v<Gradient, Gradients<ByUse>> ||
                                      std::is_same_v<Gradient, Gradients<Precision>> ||
                                      (std::is_same_v<Gradient, Gradients<F32>> &&
                                       (std::is_same_v<Precision, Bf16> || std::is_same_v<Precision, F16>));

template <class... M>
struct Canonical {
  static_assert(((role_of<M> != Role::unknown) && ...),
                "dspp: Policy takes Zero<stage>, F64, F32, Bf16, F16, Gradients<precision>, Shards<Within<Node>>, "
                "SecondaryShards<Node>, GatherAs<format>, ReduceAs<format>, Overlap<Off>, Tp<n>, Pp<n>, Cp<n>, Ep<n>, "
                "SequenceParallel, RegatherInputs, AttentionBy<kernels>, "
                "Offload<what, where>, PartitionActivations, SelectiveRecompute<what>, Delayed<1>, Speculative, "
                "ZenFlow, Cpu, Cuda and Meta, but one of its members is none of these. Drop it.");
  static_assert(times_named<Role::zero, M...> <= 1, "dspp: Policy needs one ZeRO stage, but names several. Keep one.");
  static_assert(times_named<Role::precision, M...> <= 1,
                "dspp: Policy needs one precision, but names several. Keep one.");
  static_assert(times_named<Role::gradients, M...> <= 1,
                "dspp: Policy needs one Gradients<...>, but names several. Keep one.");
  static_assert(times_named<Role::shards, M...> <= 1,
                "dspp: Policy needs one Shards<...>, but names several. Keep one.");
  static_assert(times_named<Role::secondary, M...> <= 1,
                "dspp: Policy needs one SecondaryShards<...>, but names several. Keep one.");
  static_assert(times_named<Role::gather, M...> <= 1,
                "dspp: Policy needs one GatherAs<...>, but names several. Keep one.");
  static_assert(times_named<Role::reduce, M...> <= 1,
                "dspp: Policy needs one ReduceAs<...>, but names several. Keep one.");
  static_assert(times_named<Role::overlap, M...> <= 1,
                "dspp: Policy needs one Overlap<Off>, but names several. Keep one.");
  static_assert(
      (is_known_overlap<M> && ...),
      "dspp: Overlap<Off> is the only Overlap, since to overlap is the default, but got another. Name Off, or "
      "drop it.");
  static_assert((is_known_format<M> && ...),
                "dspp: GatherAs<format> and ReduceAs<format> take Int8 and Int4, but got another. Name one of them.");
  static_assert((is_known_feedback<M> && ...),
                "dspp: ReduceAs<format, feedback> takes LoCo, or no feedback, but got another. Name LoCo, or drop it.");
  static_assert((is_known_group<M> && ...),
                "dspp: a policy takes Shards<Within<Node>> and SecondaryShards<Node>, but got one of another group of "
                "ranks. Name Node.");
  static_assert(times_named<Role::tp, M...> <= 1, "dspp: Policy needs one Tp<n>, but names several. Keep one.");
  static_assert(times_named<Role::pp, M...> <= 1, "dspp: Policy needs one Pp<n>, but names several. Keep one.");
  static_assert(times_named<Role::cp, M...> <= 1, "dspp: Policy needs one Cp<n>, but names several. Keep one.");
  static_assert(times_named<Role::ep, M...> <= 1, "dspp: Policy needs one Ep<n>, but names several. Keep one.");
  static_assert(times_named<Role::sequence, M...> <= 1,
                "dspp: Policy needs one choice of sequence parallelism, but has several. Keep one.");
  static_assert(
      times_named<Role::inputs, M...> <= 1,
      "dspp: Policy needs one choice of column inputs (KeepInputs, RegatherInputs), but has several. Keep one.");
  static_assert(times_named<Role::attention, M...> <= 1,
                "dspp: Policy needs one AttentionBy<...>, but names several. Keep one.");
  static_assert(times_named<Role::offload, M...> <= 1,
                "dspp: Policy needs one Offload<Optimizer, where>, but names several. Keep one.");
  static_assert(times_named<Role::offload_parameters, M...> <= 1,
                "dspp: Policy needs one Offload<Parameters, where>, but names several. Keep one.");
  static_assert(times_named<Role::offload_activations, M...> <= 1 && times_named<Role::partition, M...> <= 1,
                "dspp: Policy needs one Offload<Activations, where> and one PartitionActivations, but names several. "
                "Keep one.");
  static_assert(times_named<Role::norms, M...> <= 1 && times_named<Role::functions, M...> <= 1,
                "dspp: Policy needs one SelectiveRecompute<...> of each kind, but names several. Keep one.");
  static_assert((is_known_recompute<M> && ...),
                "dspp: SelectiveRecompute<what> takes Norms and ActivationFunctions, but got another. Name one of "
                "them; a layer as a whole is Recompute<L>.");
  static_assert(times_named<Role::delay, M...> <= 1,
                "dspp: Policy needs one Delayed<1>, Speculative or ZenFlow, but names several. Keep one.");
  static_assert((is_known_delay<M> && ...), "dspp: Delayed<steps> takes 1, but got another number. Name Delayed<1>.");
  static_assert(times_named<Role::device, M...> <= 1, "dspp: Policy needs one device, but names several. Keep one.");

  using Given = Strategy<M...>;
  using Precision = typename Given::Precision;
  using Sequence = typename Given::Sequence;
  static_assert(sizeof(typename Given::PipelineAxis) * sizeof(typename Given::ContextAxis) *
                    sizeof(typename Given::ExpertAxis) * sizeof(typename Given::ZeroStage) *
                    sizeof(KernelsOf<typename Given::Attention>) * sizeof(TierOf<typename Given::OffloadChoice>) *
                    sizeof(TierOf<typename Given::ParameterOffloadChoice>) *
                    sizeof(TierOf<typename Given::ActivationOffloadChoice>) >
                0);  // each checks its argument

  static_assert(
      Given::TensorAxis::degree > 1 || !std::is_same_v<Sequence, SequenceParallel>,
      "dspp: SequenceParallel needs a tensor axis to split the sequence over, but Tp is 1. Add Tp<2> or more, or "
      "remove SequenceParallel.");
  static_assert(
      std::is_same_v<Sequence, SequenceParallel> || !std::is_same_v<typename Given::Inputs, RegatherInputs>,
      "dspp: RegatherInputs needs inputs that were gathered, but the policy has no SequenceParallel. Add it, or "
      "remove RegatherInputs.");
  static_assert(
      gradients_fit<typename Given::GradientChoice, Precision>,
      "dspp: Gradients<...> needs the policy's own precision or, beside Bf16 and F16, F32, but it is another. "
      "Change one of them.");

  static_assert(!std::is_same_v<typename Given::Attention, AttentionBy<CuDnn>> ||
                    sizeof(typename Precision::Element) == 2,
                "dspp: AttentionBy<CuDnn> needs Bf16 or F16, which cuDNN's attention is for, but the policy has "
                "another precision. Change one of them.");

  static_assert(!Given::replica_traffic.shards_within_node || Given::zero_stage > 0,
                "dspp: Shards<Within<Node>> needs a ZeRO stage that shards something, but the policy has Zero<0>. Add "
                "Zero<1>, Zero<2> or Zero<3>, or drop it.");
  static_assert(!Given::replica_traffic.secondary_shards || Given::zero_stage == 3,
                "dspp: SecondaryShards<Node> needs parameters that are gathered, but the policy has no Zero<3>. Add "
                "it, or drop SecondaryShards.");
  static_assert(!Given::replica_traffic.secondary_shards || !Given::replica_traffic.shards_within_node,
                "dspp: SecondaryShards<Node> needs shards over all nodes, but Shards<Within<Node>> gathers inside of "
                "nodes as it is. Drop one of them.");

  static_assert(Given::replica_traffic.gather_bits == 0 || Given::zero_stage == 3,
                "dspp: GatherAs<...> needs parameters that are gathered to be used, but the policy has no Zero<3>. Add "
                "it, or drop GatherAs.");
  static_assert(Given::replica_traffic.reduce_bits == 0 || Given::zero_stage > 0,
                "dspp: ReduceAs<...> needs gradients that are reduced to shards, but the policy has Zero<0>. Add "
                "Zero<1>, Zero<2> or Zero<3>, or drop ReduceAs.");
  static_assert(Given::replica_traffic.reduce_bits == 0 || !Given::replica_traffic.shards_within_node,
                "dspp: ReduceAs<...> needs shards over all nodes, but the policy has Shards<Within<Node>>, which adds "
                "slices across nodes in full precision. Drop one of them.");

  static_assert(Given::parameter_tier == Tier::device || Given::zero_stage == 3,
                "dspp: Offload<Parameters, where> needs parameters that are gathered to be used, but the policy has "
                "no Zero<3>. Add it, or drop this Offload.");
  static_assert(Given::parameter_tier != Tier::disk || Given::optimizer_tier == Tier::disk,
                "dspp: Offload<Parameters, Disk> needs Offload<Optimizer, Disk>, since a step that a disk refuses is "
                "undone there, but the policy keeps the optimizer's state in memory. Add it, or take Host.");
  static_assert(
      !(Given::delays_updates || Given::speculates || Given::selects_rows) || Given::optimizer_tier != Tier::disk,
      "dspp: Delayed<1>, Speculative and ZenFlow need the optimizer's state in memory, since a step on a disk is "
      "undone if the disk refuses it, but the policy has Offload<Optimizer, Disk>. Take Host, or drop it.");
  static_assert(!Given::partitions_activations || (Given::TensorAxis::degree > 1 && !Given::sequence_parallel),
                "dspp: PartitionActivations needs ranks of Tp that keep the same, but the policy has no Tp, or splits "
                "the sequence over it by SequenceParallel. Drop one of them.");
  static_assert((Given::optimizer_tier == Tier::device && Given::parameter_tier == Tier::device &&
                 Given::activation_tier == Tier::device) ||
                    has_host_memory<typename Given::DeviceType>,
                "dspp: Offload<...> needs Cpu or Cuda, whose operations take what is in the host's memory, but the "
                "policy has another device. Drop one of them.");

  using type = strategy_of<Given, typename Given::DeviceType>;
};

}  // namespace detail

/// An unordered pack of members in, the canonical Strategy out.
template <class... Members>
using Policy = typename detail::Canonical<Members...>::type;

static_assert(std::is_same_v<Policy<Tp<2>, Zero<1>>, Policy<Zero<1>, Cpu, Tp<2>, F32>>);

namespace detail {
template <class X, Device D>
struct Rebind {
  static_assert(!std::is_same_v<X, X>,
                "dspp: a plan needs the model under another policy, on Meta, but its type does not say how. Make it a "
                "template of its policy alone, or give it a member template <class Q> using on = ....");
  using type = X;
};
template <class... Members, Device D>
struct Rebind<Strategy<Members...>, D> {
  using type = strategy_of<Strategy<Members...>, D>;
};
template <class... Members, class D>
struct Rebind<Strategy<Members...>, MetaOf<D>> {
  using type = strategy_on_paper<Strategy<Members...>, MetaOf<D>>;
};
/// X's own `on`, not that of a base.
template <class X, class P>
concept OffersOn = requires {
  typename X::template on<P>;
  requires std::is_same_v<typename X::template on<typename X::policy>, X>;
};

/// Models `M<P>` are rebound by replacing P; a layer with more parameters offers `template <class Q> using on = ...`.
template <class X, Device D>
requires OffersOn<X, typename Rebind<typename X::policy, D>::type>
struct Rebind<X, D> {
  using type = typename X::template on<typename Rebind<typename X::policy, D>::type>;
};
template <class X>
inline constexpr bool is_strategy = false;
template <class... Members>
inline constexpr bool is_strategy<Strategy<Members...>> = true;
template <template <class> class M, class P, Device D>
requires(!is_strategy<M<P>> && !OffersOn<M<P>, typename Rebind<P, D>::type>) struct Rebind<M<P>, D> {
  using type = M<typename Rebind<P, D>::type>;
};
}  // namespace detail

/// The same policy, layer or model on another device; on Meta without ZeRO stage and gradients' type.
template <class X, Device D>
using rebind = typename detail::Rebind<X, D>::type;

namespace detail {
template <class L, class P>
struct RebindLayer {
  using type = L;
};
template <class L, class P>
requires requires {
  typename L::policy;
}
struct RebindLayer<L, P> {
  using type = rebind<L, typename P::DeviceType>;
};
}  // namespace detail

/// A part of a model on P's device: a layer is rebound; what has no policy (Gelu, ColumnParallel<Linear>) stays.
template <class L, class P>
using rebind_layer = typename detail::RebindLayer<L, P>::type;

}  // namespace dspp
