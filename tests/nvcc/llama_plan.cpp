// SPDX-License-Identifier: Apache-2.0
/// A Llama's plan in constant expressions of a CUDA program: plain, recomputed over tensor ranks, and with a tied head.
#include <dspp/models/llama.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;
using Plain = Policy<Bf16, Zero<2>>;
using Split = Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>;

constexpr LlamaConfig tiny{.layers = 2, .width = 24, .heads = 12, .kv_heads = 4, .ffn_width = 64, .vocabulary = 61};
constexpr BatchSizes sizes{.micro_batch = 1, .sequence = 16};
constexpr PlanOptions options{.data = 2};
constexpr Plan plain = plan<Llama<Plain>>(tiny, sizes, options);
constexpr Plan recomputed = plan<Llama<Split, Recompute<LlamaBlock<Split>>>>(tiny, sizes, options);
constexpr Plan tied = plan<Llama<Plain, LlamaBlock<Plain>, TiedHead<Plain>>>(tiny, sizes, options);

static_assert(plain.parameters == 2 * 61 * 24 + 24 + 2 * (2 * 24 + 2 * 24 * 24 + 16 * 24 + 3 * 64 * 24));
static_assert(tied.parameters == plain.parameters - 61 * 24);
static_assert(recomputed.parameters == plain.parameters && recomputed.resident < plain.resident);

int main() {
  return plan<Llama<Plain>>(tiny, sizes, options).peak == plain.peak ? 0 : 1;
}
