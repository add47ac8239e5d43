// SPDX-License-Identifier: Apache-2.0
// Recompute of a part of each block: the bits of a run without, at the planned cost, between keeping all and whole
// blocks that run again.
// labels: engine thread
#include <laws/small_llama.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class P>
using GptOfFeed = Gpt<P, GptBlock<P, Recompute<Mlp<P>>>>;
template <class P>
using LlamaOfFeed = Llama<P, LlamaBlock<P, Recompute<GatedMlp<P>>>>;

Size activations(const Trained& trained) {
  return trained.ranks[0].by_category[Category::activations];
}

template <class Kept, class Part, class Whole>
void check_part(const Cell& cell, const Trained& one_rank) {
  const Trained kept = train<Kept>(cell), part = check_cell<Part>(cell, one_rank, 1e-9), whole = train<Whole>(cell);
  check_same_bits(part, kept);
  CHECK(part.ranks[0].replicas == kept.ranks[0].replicas);
  CHECK(activations(part) < activations(kept));
  CHECK(activations(whole) < activations(part));
}

}  // namespace

TEST_CASE("recomputing the feed-forward sub-layers alone changes no bit, and keeps less") {
  using F = Policy<F64>;
  using Split = Policy<F64, Zero<3>, Tp<2>, SequenceParallel>;
  const Trained gpt = train<Gpt<F>>({.dropout = 0.1}), llama = train<Llama<F>>({});
  check_part<Gpt<F>, GptOfFeed<F>, RecomputedGpt<F>>({.dropout = 0.1}, gpt);
  check_part<Gpt<Split>, GptOfFeed<Split>, RecomputedGpt<Split>>({.ranks = 4, .accumulate = 2, .dropout = 0.1}, gpt);
  check_part<Llama<F>, LlamaOfFeed<F>, RecomputedLlama<F>>({.ranks = 2}, llama);
}

TEST_CASE("their products run once more in backward, and nothing else") {
  using P = Policy<F32>;
  constexpr GptConfig config{.layers = 3, .width = 16, .heads = 2, .vocabulary = 64, .sequence = 32};
  constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 32};
  constexpr Plan kept = plan<Gpt<P>>(config, sizes), part = plan<GptOfFeed<P>>(config, sizes);
  static_assert(part.forward_flops == kept.forward_flops && part.peak < kept.peak);
  constexpr auto products = 2 * 2 * sizes.micro_batch * sizes.sequence * config.width * config.effective_ffn_width();
  const auto more = part.backward_flops - kept.backward_flops;
  CHECK(more >= config.layers * products);
  CHECK(more < config.layers * products * 6 / 5);  // and what elements cost: bias, gelu
}
