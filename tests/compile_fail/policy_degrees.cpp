// SPDX-License-Identifier: Apache-2.0
/// Invalid degrees and stages.
// expected-error {{dspp: Zero<Stage> needs a stage from 0 to 3, but this one is not.}}
// expected-error {{dspp: Tp<N> needs a degree of at least 1. Write Tp<1> for no tensor parallelism.}}
// expected-error {{dspp: Pp<N> has no schedules yet, but N is not 1. Leave Pp out of the policy.}}
// expected-error {{dspp: Cp<N> needs a degree of at least 1. Write Cp<1> for no context parallelism.}}
// expected-error {{dspp: Ep<N> has no expert layers yet, but N is not 1. Leave Ep out of the policy.}}
#include <dspp/placement/policy.hpp>

using namespace dspp;

/// A ZeRO stage that does not exist.
namespace stage_four {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<3>>::tp;
#else
constexpr int degree = Policy<Zero<4>>::tp;
#endif
}  // namespace stage_four

/// A group of no ranks.
namespace tensor_degree_zero {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Tp<1>>::tp;
#else
constexpr int degree = Policy<Tp<0>>::tp;
#endif
}  // namespace tensor_degree_zero

/// Pipeline parallelism, which has no schedules yet.
namespace pipeline_degree_two {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Pp<1>>::tp;
#else
constexpr int degree = Policy<Pp<2>>::tp;
#endif
}  // namespace pipeline_degree_two

/// Sequences cut over no ranks.
namespace context_degree_zero {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Cp<2>>::tp;
#else
constexpr int degree = Policy<Cp<0>>::tp;
#endif
}  // namespace context_degree_zero

/// Expert parallelism, which has no layers yet.
namespace expert_degree_two {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Ep<1>>::tp;
#else
constexpr int degree = Policy<Ep<2>>::tp;
#endif
}  // namespace expert_degree_two
