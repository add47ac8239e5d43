// SPDX-License-Identifier: Apache-2.0
/// Unknown, doubled and contradictory members of a policy.
// expected-error {{dspp: Policy takes Zero<stage>, F64, F32, Bf16, F16, Gradients<precision>, Shards<Within<Node>>,}}
// expected-error {{SecondaryShards<Node>, GatherAs<format>, ReduceAs<format>, Overlap<Off>, Tp<n>, Pp<n>, Cp<n>,}}
// expected-error {{Ep<n>,}}
// expected-error {{SequenceParallel, RegatherInputs, AttentionBy<kernels>, Offload<what, where>,}}
// expected-error {{PartitionActivations, SelectiveRecompute<what>, Delayed<1>, Speculative, ZenFlow, Cpu,}}
// expected-error {{Cuda and Meta,}}
// expected-error {{but one of its members is none of these. Drop it.}}
// expected-error {{dspp: Policy needs one ZeRO stage, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one precision, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Tp<n>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Pp<n>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Cp<n>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Ep<n>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one device, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Gradients<...>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one choice of sequence parallelism, but has several. Keep one.}}
// expected-error {{dspp: Policy needs one choice of column inputs (KeepInputs, RegatherInputs), but has several.}}
// expected-error {{Keep one.}}
// expected-error {{dspp: RegatherInputs needs inputs that were gathered, but the policy has no}}
// expected-error {{SequenceParallel. Add it, or remove RegatherInputs.}}
// expected-error {{dspp: Gradients<...> needs the policy's own precision or, beside Bf16 and F16, F32, but it}}
// expected-error {{is another. Change one of them.}}
// expected-error {{dspp: Policy needs one AttentionBy<...>, but names several. Keep one.}}
// expected-error {{dspp: AttentionBy<kernels> takes Fastest, CuDnn, FlashKernels and PlainKernels, but got another.}}
// expected-error {{Name one of them.}}
// expected-error {{dspp: AttentionBy<CuDnn> needs Bf16 or F16, which cuDNN's attention is for, but the policy has}}
// expected-error {{another precision. Change one of them.}}
// expected-error {{dspp: Policy needs one SelectiveRecompute<...> of each kind, but names several. Keep one.}}
// expected-error {{dspp: SelectiveRecompute<what> takes Norms and ActivationFunctions, but got another. Name one of}}
// expected-error {{them; a layer as a whole is Recompute<L>.}}
#include <dspp/placement/policy.hpp>

using namespace dspp;

/// A member that is not a policy.
namespace policy_with_unknown_member {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<2>, Bf16>::tp;
#else
constexpr int degree = Policy<Zero<2>, short>::tp;
#endif
}  // namespace policy_with_unknown_member

/// Two ZeRO stages.
namespace policy_with_two_stages {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<2>>::tp;
#else
constexpr int degree = Policy<Zero<2>, Zero<3>>::tp;
#endif
}  // namespace policy_with_two_stages

/// Two precisions.
namespace policy_with_two_precisions {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Bf16, Tp<2>>::tp;
#else
constexpr int degree = Policy<Bf16, Tp<2>, F32>::tp;
#endif
}  // namespace policy_with_two_precisions

/// The same member twice.
namespace policy_with_doubled_member {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Tp<2>>::tp;
#else
constexpr int degree = Policy<Tp<2>, Tp<2>>::tp;
#endif
}  // namespace policy_with_doubled_member

/// Two degrees of the other axes.
namespace policy_with_two_degrees {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Pp<1>, Cp<2>, Ep<1>>::tp;
#else
constexpr int degree = Policy<Pp<1>, Pp<1>>::tp + Policy<Cp<2>, Cp<3>>::tp + Policy<Ep<1>, Ep<1>>::tp;
#endif
}  // namespace policy_with_two_degrees

/// Two devices.
namespace policy_with_two_devices {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Meta>::tp;
#else
constexpr int degree = Policy<Meta, Cpu>::tp;
#endif
}  // namespace policy_with_two_devices

/// Two precisions for gradients.
namespace policy_with_two_gradient_precisions {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Bf16, Gradients<F32>>::tp;
#else
constexpr int degree = Policy<Bf16, Gradients<F32>, Gradients<Bf16>>::tp;
#endif
}  // namespace policy_with_two_gradient_precisions

/// Both sequence parallelism and none.
namespace policy_contradicts_sequence_parallelism {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Tp<2>, SequenceParallel>::tp;
#else
constexpr int degree = Policy<Tp<2>, SequenceParallel, NoSequenceParallel>::tp;
#endif
}  // namespace policy_contradicts_sequence_parallelism

/// Inputs that are both kept and gathered again.
namespace policy_contradicts_column_inputs {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Tp<2>, SequenceParallel, RegatherInputs>::tp;
#else
constexpr int degree = Policy<Tp<2>, SequenceParallel, RegatherInputs, KeepInputs>::tp;
#endif
}  // namespace policy_contradicts_column_inputs

/// Inputs gathered again that were never gathered.
namespace regather_without_sequence_parallel {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Tp<2>, SequenceParallel, RegatherInputs>::tp;
#else
constexpr int degree = Policy<Tp<2>, RegatherInputs>::tp;
#endif
}  // namespace regather_without_sequence_parallel

/// Gradients in a precision that the policy does not know.
namespace gradients_wider_than_masters {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Bf16, Gradients<F32>>::tp;
#else
constexpr int degree = Policy<F32, Gradients<Bf16>>::tp;
#endif
}  // namespace gradients_wider_than_masters

/// Gradients in the other 16 bits.
namespace gradients_of_another_half {
#ifdef DSPP_TWIN
constexpr int degree = Policy<F16, Gradients<F16>>::tp;
#else
constexpr int degree = Policy<F16, Gradients<Bf16>>::tp;
#endif
}  // namespace gradients_of_another_half

/// Two choices of attention.
namespace policy_with_two_attentions {
#ifdef DSPP_TWIN
constexpr int degree = Policy<AttentionBy<FlashKernels>>::tp;
#else
constexpr int degree = Policy<AttentionBy<FlashKernels>, AttentionBy<PlainKernels>>::tp;
#endif
}  // namespace policy_with_two_attentions

/// Attention by what is no kind of kernels.
namespace attention_by_another {
#ifdef DSPP_TWIN
constexpr int degree = Policy<AttentionBy<Fastest>>::tp;
#else
constexpr int degree = Policy<AttentionBy<Bf16>>::tp;
#endif
}  // namespace attention_by_another

/// cuDNN's attention of 32-bit values.
namespace cudnn_in_another_precision {
#ifdef DSPP_TWIN
constexpr int degree = Policy<F16, AttentionBy<CuDnn>>::tp;
#else
constexpr int degree = Policy<F32, AttentionBy<CuDnn>>::tp;
#endif
}  // namespace cudnn_in_another_precision

/// What is computed again, twice, and as what it is not.
namespace policy_with_other_recomputes {
#ifdef DSPP_TWIN
constexpr int degree = Policy<SelectiveRecompute<Norms>, SelectiveRecompute<ActivationFunctions>>::tp;
#else
constexpr int degree = Policy<SelectiveRecompute<Norms>, SelectiveRecompute<Norms>>::tp +
                       Policy<SelectiveRecompute<F32>>::tp;
#endif
}  // namespace policy_with_other_recomputes
