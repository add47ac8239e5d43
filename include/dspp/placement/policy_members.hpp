// SPDX-License-Identifier: Apache-2.0
/// The members of a policy, but for axes, devices, offload and traffic, and the role of each.
#pragma once

#include <type_traits>

#include <dspp/base/element.hpp>
#include <dspp/ops/attention_kernels.hpp>
#include <dspp/placement/axes.hpp>
#include <dspp/placement/delayed.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/placement/replica_traffic.hpp>
#include <dspp/placement/selective_recompute.hpp>
#include <dspp/placement/speculative.hpp>
#include <dspp/placement/zenflow.hpp>
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
  overlap,
  tp,
  pp,
  cp,
  ep,
  sequence,
  inputs,
  attention,
  offload,
  offload_parameters,
  offload_activations,
  partition,
  norms,
  functions,
  delay,
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
template <class X, class F>
inline constexpr Role role_of<ReduceAs<X, F>> = Role::reduce;
template <class X>
inline constexpr Role role_of<Overlap<X>> = Role::overlap;
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
inline constexpr Role role_of<Offload<What, Where>> = std::is_same_v<What, Parameters>    ? Role::offload_parameters
                                                      : std::is_same_v<What, Activations> ? Role::offload_activations
                                                                                          : Role::offload;
template <>
inline constexpr Role role_of<PartitionActivations> = Role::partition;
template <class What>
inline constexpr Role role_of<SelectiveRecompute<What>> =
    std::is_same_v<What, ActivationFunctions> ? Role::functions : Role::norms;
template <int N>
inline constexpr Role role_of<Delayed<N>> = Role::delay;
template <>
inline constexpr Role role_of<Speculative> = Role::delay;
template <>
inline constexpr Role role_of<ZenFlow> = Role::delay;
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

/// In place of a member that a policy does not name.
struct Unnamed {};
template <class Member>
struct TierOf {
  static constexpr Tier tier = Tier::device;
};
template <class What, class Where>
struct TierOf<Offload<What, Where>> {
  static constexpr bool host = std::is_same_v<Where, Host>;
  static constexpr bool known = (std::is_same_v<What, Optimizer> || std::is_same_v<What, Parameters> ||
                                 std::is_same_v<What, Activations>)&&(host || std::is_same_v<Where, Disk>);
  static_assert(known,
                "dspp: Offload<what, where> takes Optimizer, Parameters and Activations in Host or Disk, but got "
                "another. Name one of them.");
  static constexpr Tier tier = std::conditional_t<known, Where, Host>::tier;
};

/// Of an element that travels; 0: as it is.
template <class Member>
inline constexpr int bits_of = 0;
template <class X>
requires requires {
  X::bits;
}
inline constexpr int bits_of<GatherAs<X>> = X::bits;
template <class X, class F>
requires requires {
  X::bits;
}
inline constexpr int bits_of<ReduceAs<X, F>> = X::bits;
template <class Member>
inline constexpr bool feeds_back = false;
template <class X>
inline constexpr bool feeds_back<ReduceAs<X, LoCo>> = true;
template <class Member>
inline constexpr bool is_known_format = true;
template <class X>
inline constexpr bool is_known_format<GatherAs<X>> = std::is_same_v<X, Int8> || std::is_same_v<X, Int4>;
template <class X, class F>
inline constexpr bool is_known_format<ReduceAs<X, F>> = is_known_format<GatherAs<X>>;
template <class Member>
inline constexpr bool is_known_feedback = true;
template <class X, class F>
inline constexpr bool is_known_feedback<ReduceAs<X, F>> = std::is_void_v<F> || std::is_same_v<F, LoCo>;
template <class Member>
inline constexpr bool is_known_group = true;
template <class X>
inline constexpr bool is_known_group<Shards<X>> = std::is_same_v<X, Within<Node>>;
template <class X>
inline constexpr bool is_known_group<SecondaryShards<X>> = std::is_same_v<X, Node>;

template <class Member>
inline constexpr bool is_known_overlap = true;
template <class X>
inline constexpr bool is_known_overlap<Overlap<X>> = std::is_same_v<X, Off>;

template <class Member>
inline constexpr bool is_known_recompute = true;
template <class X>
inline constexpr bool is_known_recompute<SelectiveRecompute<X>> =
    std::is_same_v<X, Norms> || std::is_same_v<X, ActivationFunctions>;

template <class Member>
inline constexpr bool is_known_delay = true;
template <int N>
inline constexpr bool is_known_delay<Delayed<N>> = N == 1;

}  // namespace detail

}  // namespace dspp
