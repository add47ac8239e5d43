// SPDX-License-Identifier: Apache-2.0
/// Members of a policy that say where what rests.
// expected-error {{dspp: Policy needs one Offload<Optimizer, where>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Offload<Parameters, where>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Offload<Activations, where> and one PartitionActivations, but}}
// expected-error {{names several. Keep one.}}
// expected-error {{dspp: PartitionActivations needs ranks of Tp that keep the same, but the policy has no Tp, or}}
// expected-error {{splits the sequence over it by SequenceParallel. Drop one of them.}}
// expected-error {{dspp: Offload<what, where> takes Optimizer, Parameters and Activations in Host or Disk, but got}}
// expected-error {{another. Name one of them.}}
// expected-error {{dspp: Offload<Parameters, where> needs parameters that are gathered to be used, but the policy}}
// expected-error {{has no Zero<3>. Add it, or drop this Offload.}}
// expected-error {{dspp: Offload<Parameters, Disk> needs Offload<Optimizer, Disk>, since a step that a disk refuses}}
// expected-error {{is undone there, but the policy keeps the optimizer's state in memory. Add it, or take Host.}}
// expected-error {{dspp: Offload<...> needs Cpu or Cuda, whose operations take what is in the host's memory, but}}
// expected-error {{the policy has another device. Drop one of them.}}
// expected-error {{dspp: Policy needs one Delayed<1>, Speculative or ZenFlow, but names several. Keep one.}}
// expected-error {{dspp: Delayed<steps> takes 1, but got another number. Name Delayed<1>.}}
// expected-error {{dspp: Delayed<1>, Speculative and ZenFlow need the optimizer's state in memory, since a step}}
// expected-error {{on a disk is undone if the disk refuses it, but the policy has Offload<Optimizer, Disk>. Take}}
// expected-error {{Host, or drop it.}}
#include <dspp/placement/policy.hpp>

using namespace dspp;

/// The optimizer's state in two places.
namespace policy_with_two_offloads {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Offload<Optimizer, Disk>, Zero<3>, Offload<Parameters, Host>>::tp;
#else
constexpr int degree = Policy<Offload<Optimizer, Disk>, Offload<Optimizer, Host>>::tp +
                       Policy<Zero<3>, Offload<Parameters, Host>, Offload<Parameters, Host>>::tp +
                       Policy<Offload<Activations, Host>, Offload<Activations, Host>>::tp +
                       Policy<Tp<2>, PartitionActivations, PartitionActivations>::tp;
#endif
}  // namespace policy_with_two_offloads

/// What is not offloaded, and where nothing rests.
namespace policy_with_unknown_offload {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Offload<Optimizer, Host>, Offload<Activations, Disk>>::tp;
#else
constexpr int degree = Policy<Offload<Disk, Optimizer>>::tp + Policy<Offload<Optimizer, Cpu>>::tp +
                       Policy<Zero<3>, Offload<Parameters, Cpu>>::tp + Policy<Offload<Activations, Cpu>>::tp;
#endif
}  // namespace policy_with_unknown_offload

/// Values that a rank has whole.
namespace policy_with_offload_of_whole_parameters {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<3>, Offload<Parameters, Host>>::tp;
#else
constexpr int degree = Policy<Zero<2>, Offload<Parameters, Host>>::tp;
#endif
}  // namespace policy_with_offload_of_whole_parameters

/// Values on a disk beside state in memory, of which half a step would stay.
namespace policy_with_parameters_alone_on_disk {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<3>, Offload<Parameters, Disk>, Offload<Optimizer, Disk>>::tp;
#else
constexpr int degree = Policy<Zero<3>, Offload<Parameters, Disk>>::tp +
                       Policy<Zero<3>, Offload<Parameters, Disk>, Offload<Optimizer, Host>>::tp;
#endif
}  // namespace policy_with_parameters_alone_on_disk

/// A device whose memory is not the host's.
namespace policy_with_offload_of_another_device {
struct Other : Cpu {
  using Imitated = Other;
};
#ifdef DSPP_TWIN
constexpr int degree = Policy<Other, Bf16>::tp;
#else
constexpr int degree = Policy<Other, Offload<Optimizer, Host>>::tp;
#endif
}  // namespace policy_with_offload_of_another_device

/// Ranks of Tp that keep nothing in common.
namespace policy_with_partitioned_activations {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Tp<2>, PartitionActivations, Offload<Activations, Host>>::tp;
#else
constexpr int degree = Policy<PartitionActivations>::tp + Policy<Tp<2>, SequenceParallel, PartitionActivations>::tp;
#endif
}  // namespace policy_with_partitioned_activations

/// Updates that are delayed twice, by two steps, beside a disk, or begun in backward or by rows as well.
namespace policy_with_updates_that_are_not_delayed {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Delayed<1>, Offload<Optimizer, Host>>::tp + Policy<Speculative>::tp + Policy<ZenFlow>::tp;
#else
constexpr int degree = Policy<Delayed<1>, Delayed<1>>::tp + Policy<Delayed<2>>::tp +
                       Policy<Zero<1>, Delayed<1>, Offload<Optimizer, Disk>>::tp +
                       Policy<Delayed<1>, Speculative>::tp + Policy<Speculative, Offload<Optimizer, Disk>>::tp +
                       Policy<ZenFlow, Speculative>::tp + Policy<ZenFlow, Offload<Optimizer, Disk>>::tp;
#endif
}  // namespace policy_with_updates_that_are_not_delayed
