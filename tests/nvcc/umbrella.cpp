// SPDX-License-Identifier: Apache-2.0
/// The whole of dspp as host code of a CUDA program, and a Llama's plan in its constant expressions: plain, recomputed
/// over tensor ranks, and with a tied head.
#include <dspp/app.hpp>
#include <dspp/checkpoint.hpp>
#include <dspp/data.hpp>
#include <dspp/dspp.hpp>
#include <dspp/hub.hpp>
#include <dspp/io.hpp>
#include <dspp/observe.hpp>

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

static_assert(bf16(1.0f) == 1.0f && f16(1.0f) == 1.0f);
static_assert(detail::HasParts<Gpt<Policy<>>> && !detail::HasParts<GptConfig>);

int main() {
  const bool numbers = bf16(3.0f) == 3.0f && f16(1e-7f).bits == 2;
  return numbers && plan<Llama<Plain>>(tiny, sizes, options).peak == plain.peak ? 0 : 1;
}
