// SPDX-License-Identifier: Apache-2.0
/// A plan of a Llama whose query heads can be split evenly, but not its heads of keys and values.
// expected-error {{dspp: GroupedAttention needs kv_heads that the Tp degree divides, but it does not. Change}}
// expected-error {{kv_heads or Tp<n>.}}
#include <dspp/models/llama.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
constexpr LlamaConfig tiny{.layers = 1, .width = 8, .heads = 4, .kv_heads = 2, .ffn_width = 8, .vocabulary = 16};
#else
constexpr LlamaConfig tiny{.layers = 1, .width = 8, .heads = 4, .kv_heads = 1, .ffn_width = 8, .vocabulary = 16};
#endif
constexpr auto paper = plan<Llama<P>>(tiny, BatchSizes{.micro_batch = 1, .sequence = 8});
