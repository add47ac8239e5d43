// SPDX-License-Identifier: Apache-2.0
/// A sequence split over an axis of one rank.
// expected-error {{dspp: SequenceParallel needs a tensor axis to split the sequence over, but Tp is 1. Add}}
// expected-error {{Tp<2> or more, or remove SequenceParallel.}}
#include <dspp/placement/policy.hpp>

using namespace dspp;

#ifdef DSPP_TWIN
constexpr int degree = Policy<Tp<2>, SequenceParallel>::tp;
#else
constexpr int degree = Policy<SequenceParallel>::tp;
#endif
