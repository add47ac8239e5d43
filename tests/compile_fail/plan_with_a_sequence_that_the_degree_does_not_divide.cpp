// SPDX-License-Identifier: Apache-2.0
/// A plan in a constant expression of a sequence that does not fit the policy.
// expected-error {{dspp: plan needs a sequence that the Cp degree divides, but it does not. Change sequence or}}
// expected-error {{Cp<n>.}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;
using P = Policy<Zero<2>, Cp<4>>;

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 4, .vocabulary = 16, .sequence = 12};
#ifdef DSPP_TWIN
constexpr auto paper = plan<Gpt<P>>(tiny, BatchSizes{.micro_batch = 1, .sequence = 12});
#else
constexpr auto paper = plan<Gpt<P>>(tiny, BatchSizes{.micro_batch = 1, .sequence = 10});
#endif
