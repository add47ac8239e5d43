// SPDX-License-Identifier: Apache-2.0
/// A strategy as a type: Policy<Zero<2>, Bf16, Tp<2>, SequenceParallel>. Name only what differs from the default.
#pragma once

#include <type_traits>

#include <dspp/base/element.hpp>
#include <dspp/mesh/axis.hpp>
#include <dspp/ops/attention_kernels.hpp>
#include <dspp/placement/axes.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/placement/placed.hpp>
#include <dspp/placement/replica_traffic.hpp>
#include <dspp/tensor/device.hpp>

namespace dspp {

/// The ZeRO stage: what is sharded over the replica axes: 0 nothing, 1 optimizer state, 2 also gradients, 3 also
/// parameters. Rajbhandari et al. 2020, arXiv:1910.02054.
template <int Stage>
struct Zero {
  static_assert(0 <= Stage && Stage <= 3, "dspp: Zero<Stage> needs a stage from 0 to 3, but this one is not.");
  static constexpr int stage = Stage;
};

struct F64 {
  using Element = double;
};
struct F32 {
  using Element = float;
};
/// bf16 values, f32 accumulation, f32 masters and moments.
struct Bf16 {
  using Element = bf16;
};
/// f16 values, f32 accumulation, f32 masters and moments, and a loss scale (optim/loss_scale.hpp), since small
/// gradients would vanish in f16. Micikevicius et al. 2017, arXiv:1710.03740.
struct F16 {
  using Element = f16;
};

/// The precision in which parameter gradients are kept and reduced. `Gradients<ByUse>`, the default, takes the element
/// type without accumulation and f32 with it (summing 128 micro-steps in bf16 loses 1e-2).
struct ByUse {};
template <class Precision>
struct Gradients {};

/// The residual stream is split along the sequence over Tp. Korthikanti et al. 2022, arXiv:2205.05198.
struct SequenceParallel {};
struct NoSequenceParallel {};

/// Under SequenceParallel, a column-parallel layer gathers its input again in backward instead of keeping the gathered
/// one.
struct RegatherInputs {};
struct KeepInputs {};

/// What computes attention on Cuda, in forward and backward; of other devices it changes nothing. Kinds differ in bits,
/// and cuDNN's workspace is in the plan.
template <class Kernels>
struct AttentionBy {};
/// The default: cuDNN where it is compiled in and takes the attention, else dspp's kernels.
struct Fastest {
  static constexpr AttentionKernels attention = AttentionKernels::fastest;
};
/// Throws   Error(usage), also from a plan, for an attention that cuDNN does not take, or without cuDNN
struct CuDnn {
  static constexpr AttentionKernels attention = AttentionKernels::cudnn;
};
/// Never cuDNN: dspp's kernels, on tensor cores where they take the operands.
struct FlashKernels {
  static constexpr AttentionKernels attention = AttentionKernels::flash;
};
/// A thread a query, or a key: slow, and what others are compared with.
struct PlainKernels {
  static constexpr AttentionKernels attention = AttentionKernels::plain;
};

namespace detail {

enum class Role {
  zero,
  precision,
  gradients,
  shards,
  secondary,
  gather,
  reduce,
  tp,
  pp,
  cp,
  ep,
  sequence,
  inputs,
  attention,
  offload,
  offload_parameters,
  device,
  unknown
};

template <class Member>
inline constexpr Role role_of = Role::unknown;
template <int N>
inline constexpr Role role_of<Zero<N>> = Role::zero;
template <>
inline constexpr Role role_of<F64> = Role::precision;
template <>
inline constexpr Role role_of<F32> = Role::precision;
template <>
inline constexpr Role role_of<Bf16> = Role::precision;
template <>
inline constexpr Role role_of<F16> = Role::precision;
template <class X>
inline constexpr Role role_of<Gradients<X>> = Role::gradients;
template <class X>
inline constexpr Role role_of<Shards<X>> = Role::shards;
template <class X>
inline constexpr Role role_of<SecondaryShards<X>> = Role::secondary;
template <class X>
inline constexpr Role role_of<GatherAs<X>> = Role::gather;
template <class X>
inline constexpr Role role_of<ReduceAs<X>> = Role::reduce;
template <int N>
inline constexpr Role role_of<Tp<N>> = Role::tp;
template <int N>
inline constexpr Role role_of<Pp<N>> = Role::pp;
template <int N>
inline constexpr Role role_of<Cp<N>> = Role::cp;
template <int N>
inline constexpr Role role_of<Ep<N>> = Role::ep;
template <>
inline constexpr Role role_of<SequenceParallel> = Role::sequence;
template <>
inline constexpr Role role_of<NoSequenceParallel> = Role::sequence;
template <>
inline constexpr Role role_of<RegatherInputs> = Role::inputs;
template <>
inline constexpr Role role_of<KeepInputs> = Role::inputs;
template <class X>
inline constexpr Role role_of<AttentionBy<X>> = Role::attention;
template <class What, class Where>
inline constexpr Role role_of<Offload<What, Where>> =
    std::is_same_v<What, Parameters> ? Role::offload_parameters : Role::offload;
template <Device D>
inline constexpr Role role_of<D> = Role::device;

/// The member of a role, or the default.
template <Role R, class Default, class... Members>
struct Pick {
  using type = Default;
};
template <Role R, class Default, class Member, class... Rest>
struct Pick<R, Default, Member, Rest...> {
  using type = typename std::conditional_t<role_of<Member> == R, Pick<R, Member>, Pick<R, Default, Rest...>>::type;
};
template <Role R, class Default, class... Members>
using pick = typename Pick<R, Default, Members...>::type;

template <Role R, class... Members>
inline constexpr int times_named = (0 + ... + (role_of<Members> == R ? 1 : 0));

template <class Member>
struct KernelsOf;
template <class X>
struct KernelsOf<AttentionBy<X>> {
  static constexpr bool known = std::is_same_v<X, Fastest> || std::is_same_v<X, CuDnn> ||
                                std::is_same_v<X, FlashKernels> || std::is_same_v<X, PlainKernels>;
  static_assert(known,
                "dspp: AttentionBy<kernels> takes Fastest, CuDnn, FlashKernels and PlainKernels, but got another. Name "
                "one of them.");
  using type = std::conditional_t<known, X, Fastest>;
};

/// Offloads nothing.
struct Resident {};
template <class Member>
struct TierOf {
  static constexpr Tier tier = Tier::device;
};
template <class What, class Where>
struct TierOf<Offload<What, Where>> {
  static constexpr bool host = std::is_same_v<Where, Host>;
  static constexpr bool known = std::is_same_v<What, Parameters>
                                    ? host
                                    : std::is_same_v<What, Optimizer> && (host || std::is_same_v<Where, Disk>);
  static_assert(known,
                "dspp: Offload<what, where> takes Optimizer in Host or Disk, and Parameters in Host, but got another. "
                "Name one of them.");
  static constexpr Tier tier = std::conditional_t<known, Where, Host>::tier;
};

/// Shards over all replicas, no second ones, and elements that travel as they are.
struct ShardsOverReplicas {};
struct NoSecondaryShards {};
struct AsTheyAre {
  static constexpr int bits = 0;
};
template <class Member>
inline constexpr int bits_of = 0;
template <class X>
requires requires {
  X::bits;
}
inline constexpr int bits_of<GatherAs<X>> = X::bits;
template <class X>
requires requires {
  X::bits;
}
inline constexpr int bits_of<ReduceAs<X>> = X::bits;
template <class Member>
inline constexpr bool is_known_format = true;
template <class X>
inline constexpr bool is_known_format<GatherAs<X>> = std::is_same_v<X, Int8> || std::is_same_v<X, Int4>;
template <class X>
inline constexpr bool is_known_format<ReduceAs<X>> = std::is_same_v<X, Int8> || std::is_same_v<X, Int4>;
template <class Member>
inline constexpr bool is_known_group = true;
template <class X>
inline constexpr bool is_known_group<Shards<X>> = std::is_same_v<X, Within<Node>>;
template <class X>
inline constexpr bool is_known_group<SecondaryShards<X>> = std::is_same_v<X, Node>;

}  // namespace detail

/// What a policy's members say; what they do not name has its default. The canonical form of a policy, which
/// Policy<...> makes and checks, names its ZeRO stage, its precision and what else differs from the default, in one
/// order, so that equal policies are one type.
template <class... Members>
struct Strategy {
  using ZeroStage = detail::pick<detail::Role::zero, Zero<0>, Members...>;
  using Precision = detail::pick<detail::Role::precision, F32, Members...>;
  using GradientChoice = detail::pick<detail::Role::gradients, Gradients<ByUse>, Members...>;
  using ShardsChoice = detail::pick<detail::Role::shards, detail::ShardsOverReplicas, Members...>;
  using SecondaryChoice = detail::pick<detail::Role::secondary, detail::NoSecondaryShards, Members...>;
  using GatherChoice = detail::pick<detail::Role::gather, GatherAs<detail::AsTheyAre>, Members...>;
  using ReduceChoice = detail::pick<detail::Role::reduce, ReduceAs<detail::AsTheyAre>, Members...>;
  using TensorAxis = detail::pick<detail::Role::tp, Tp<1>, Members...>;
  using PipelineAxis = detail::pick<detail::Role::pp, Pp<1>, Members...>;
  using ContextAxis = detail::pick<detail::Role::cp, Cp<1>, Members...>;
  using ExpertAxis = detail::pick<detail::Role::ep, Ep<1>, Members...>;
  using Sequence = detail::pick<detail::Role::sequence, NoSequenceParallel, Members...>;
  using Inputs = detail::pick<detail::Role::inputs, KeepInputs, Members...>;
  using Attention = detail::pick<detail::Role::attention, AttentionBy<Fastest>, Members...>;
  using OffloadChoice = detail::pick<detail::Role::offload, detail::Resident, Members...>;
  using ParameterOffloadChoice = detail::pick<detail::Role::offload_parameters, detail::Resident, Members...>;
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
  static constexpr ReplicaTraffic replica_traffic{
      .shards_within_node = !std::is_same_v<ShardsChoice, detail::ShardsOverReplicas>,
      .secondary_shards = !std::is_same_v<SecondaryChoice, detail::NoSecondaryShards>,
      .gather_bits = detail::bits_of<GatherChoice>,
      .reduce_bits = detail::bits_of<ReduceChoice>};

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
  using Offloaded = typename S::OffloadChoice;
  using OffloadedParameters = typename S::ParameterOffloadChoice;
};
/// The canonical form of S, on another device, with the states of another.
template <class S, Device D, class Of = States<S>>
using strategy_of = typename Shortest<
    Strategy<typename Of::ZeroStage, typename S::Precision>, Choice<Defaults::GradientChoice, typename Of::Gradient>,
    Choice<Defaults::ShardsChoice, typename Of::Sharding>, Choice<Defaults::SecondaryChoice, typename Of::Secondary>,
    Choice<Defaults::GatherChoice, typename Of::Gather>, Choice<Defaults::ReduceChoice, typename Of::Reduce>,
    Choice<Defaults::TensorAxis, typename S::TensorAxis>, Choice<Defaults::PipelineAxis, typename S::PipelineAxis>,
    Choice<Defaults::ContextAxis, typename S::ContextAxis>, Choice<Defaults::ExpertAxis, typename S::ExpertAxis>,
    Choice<Defaults::Sequence, typename S::Sequence>, Choice<Defaults::Inputs, typename S::Inputs>,
    Choice<Defaults::Attention, typename S::Attention>, Choice<Defaults::OffloadChoice, typename Of::Offloaded>,
    Choice<Defaults::ParameterOffloadChoice, typename Of::OffloadedParameters>, Choice<Defaults::DeviceType, D>>::type;
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
                "SecondaryShards<Node>, GatherAs<format>, ReduceAs<format>, Tp<n>, Pp<n>, Cp<n>, Ep<n>, "
                "SequenceParallel, RegatherInputs, AttentionBy<kernels>, "
                "Offload<what, where>, Cpu, Cuda and Meta, but one of its members is none of these. Drop it.");
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
  static_assert((is_known_format<M> && ...),
                "dspp: GatherAs<format> and ReduceAs<format> take Int8 and Int4, but got another. Name one of them.");
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
                "dspp: Policy needs one Offload<Parameters, Host>, but names several. Keep one.");
  static_assert(times_named<Role::device, M...> <= 1, "dspp: Policy needs one device, but names several. Keep one.");

  using Given = Strategy<M...>;
  using Precision = typename Given::Precision;
  using Sequence = typename Given::Sequence;
  static_assert(sizeof(typename Given::PipelineAxis) * sizeof(typename Given::ContextAxis) *
                    sizeof(typename Given::ExpertAxis) * sizeof(typename Given::ZeroStage) *
                    sizeof(KernelsOf<typename Given::Attention>) * sizeof(TierOf<typename Given::OffloadChoice>) *
                    sizeof(TierOf<typename Given::ParameterOffloadChoice>) >
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
                "dspp: Offload<Parameters, Host> needs parameters that are gathered to be used, but the policy has no "
                "Zero<3>. Add it, or drop this Offload.");
  static_assert((Given::optimizer_tier == Tier::device && Given::parameter_tier == Tier::device) ||
                    imitates_host<typename Given::DeviceType>,
                "dspp: Offload<...> needs Cpu, since what other devices keep is not moved to the host yet, but the "
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
