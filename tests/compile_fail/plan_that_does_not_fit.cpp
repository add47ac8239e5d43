// SPDX-License-Identifier: Apache-2.0
/// A plan of more bytes than there are.
// expected-error {{dspp: a plan needs to fit the memory it is given, but its peak is larger. Raise the ZeRO}}
// expected-error {{stage or Tp<n>, lower micro_batch or sequence, or use Recompute; plan.at_peak says what the}}
// expected-error {{bytes are for.}}
#include <dspp/engine/plan.hpp>
#include <dspp/models/gpt.hpp>

using namespace dspp;
using P = Policy<>;
constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 8};

#ifdef DSPP_TWIN
constexpr auto paper = plan<Gpt<P>>(tiny, PlanOptions{.micro_batch = 1, .sequence = 8});
constexpr bool fits = (must_fit(paper, 1_MiB), true);
#else
constexpr auto paper = plan<Gpt<P>>(tiny, PlanOptions{.micro_batch = 1, .sequence = 8});
constexpr bool fits = (must_fit(paper, 1_KiB), true);
#endif
