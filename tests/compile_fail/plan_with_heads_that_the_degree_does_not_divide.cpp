// SPDX-License-Identifier: Apache-2.0
/// A plan in a constant expression of a configuration that does not fit the policy.
// expected-error {{dspp: SelfAttention needs heads that the Tp degree divides, but it does not. Change heads}}
// expected-error {{or Tp<n>.}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 8};
constexpr auto paper = plan<Gpt<P>>(tiny, BatchSizes{.micro_batch = 1, .sequence = 8});
#else
constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 1, .vocabulary = 16, .sequence = 8};
constexpr auto paper = plan<Gpt<P>>(tiny, BatchSizes{.micro_batch = 1, .sequence = 8});
#endif
