// SPDX-License-Identifier: Apache-2.0
/// Members of a policy that say where what rests.
// expected-error {{dspp: Policy needs one Offload<Optimizer, where>, but names several. Keep one.}}
// expected-error {{dspp: Offload<what, where> takes Optimizer for what, and Host or Disk for where, but got}}
// expected-error {{another. Name one of them.}}
// expected-error {{dspp: Offload<...> needs Cpu, since what other devices keep is not moved to the host yet, but}}
// expected-error {{the policy has another device. Drop one of them.}}
#include <dspp/placement/policy.hpp>

using namespace dspp;

/// The optimizer's state in two places.
namespace policy_with_two_offloads {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Offload<Optimizer, Disk>>::tp;
#else
constexpr int degree = Policy<Offload<Optimizer, Disk>, Offload<Optimizer, Host>>::tp;
#endif
}  // namespace policy_with_two_offloads

/// What is not offloaded, and where nothing rests.
namespace policy_with_unknown_offload {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Offload<Optimizer, Host>>::tp;
#else
constexpr int degree = Policy<Offload<Disk, Optimizer>>::tp + Policy<Offload<Optimizer, Cpu>>::tp;
#endif
}  // namespace policy_with_unknown_offload

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
