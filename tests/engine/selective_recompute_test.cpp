// SPDX-License-Identifier: Apache-2.0
// SelectiveRecompute: the bits of a run that keeps everything, at the cost of the plan, and less kept by exactly the
// results that it names.
// labels: engine thread
#include <algorithm>

#include <laws/small_llama.hpp>

#include <dspp/zero/in_unit.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using OfNorms = SelectiveRecompute<Norms>;
using OfFunctions = SelectiveRecompute<ActivationFunctions>;

Size activations(const Trained& trained) {
  return trained.ranks[0].by_category[Category::activations];
}

/// M under a policy, whose stage the engine is given as a value, and with both members.
template <template <class> class M, int Stage, class... P>
void check_selective(const Cell& cell) {
  CAPTURE(cell.ranks);
  using Selective = Policy<Zero<Stage>, P..., OfFunctions, OfNorms>;
  const Trained kept = laws::detail::train_as<Policy<Zero<Stage>, P...>, M<Policy<P...>>, AdamW>(cell),
                again = laws::detail::train_as<Selective, M<Policy<P..., OfFunctions, OfNorms>>, AdamW>(cell);
  check_same_bits(again, kept);
  for (int r = 0; r < cell.ranks; ++r) {
    const auto& measured = again.ranks[static_cast<std::size_t>(r)];
    check_plan(plan_of<M<Selective>>(cell, r), measured, r);
    CHECK(measured.replicas == kept.ranks[static_cast<std::size_t>(r)].replicas);
    CHECK(measured.tp == kept.ranks[static_cast<std::size_t>(r)].tp);
  }
  CHECK(activations(again) < activations(kept));
}

template <class P>
using SmallGpt = Gpt<P>;
template <class P>
using SmallLlama = Llama<P>;
/// The first norm is a unit of its own, which is not gathered when the layer that takes its result runs backward. Of
/// the second another value is passed on, with its gradient.
template <class P>
struct BlockOfUnits : Layer<P> {
  InUnit<LayerNorm<P>> norm1;
  LayerNorm<P> norm2;
  Mlp<P> mlp1, mlp2;

  constexpr explicit BlockOfUnits(const GptConfig& c)
      : norm1(LayerNorm<P>(c.width)), norm2(c.width), mlp1(feed(c)), mlp2(feed(c)) {}
  static constexpr MlpConfig feed(const GptConfig& c) {
    return {.width = c.width, .ffn_width = c.effective_ffn_width()};
  }
  constexpr void visit(auto&& f) {
    f("norm1", norm1);
    f("mlp1", mlp1);
    f("norm2", norm2);
    f("mlp2", mlp2);
  }
  constexpr auto operator()(const Hidden<P>& x) const {
    const auto y = x + mlp1(norm1(x)), z = norm2(y);
    return y + mlp2(Hidden<P>::with_slot(ops::gelu(z.value(), GeluForm::tanh), z.tape(), z.slot(), 0));
  }
};
template <class P>
using GptOfUnits = Gpt<P, BlockOfUnits<P>>;
/// The whole feed-forward sub-layer runs again.
template <class P>
using GptOfFeed = Gpt<P, GptBlock<P, Recompute<Mlp<P>>>>;

/// The activations that a block more keeps for backward.
template <class Model>
Size kept_of_block() {
  GptConfig more{.layers = 9, .width = 32, .heads = 2, .vocabulary = 64, .sequence = 64}, fewer = more;
  fewer.layers = 8;
  const BatchSizes sizes{.micro_batch = 2, .sequence = 64};
  return plan<Model>(more, sizes).by_category[Category::activations] -
         plan<Model>(fewer, sizes).by_category[Category::activations];
}

}  // namespace

TEST_CASE("selective recompute changes no bit, and keeps less") {
  check_selective<SmallGpt, 0, F64>({.dropout = 0.1});
  check_selective<SmallGpt, 3, F64>({.ranks = 3, .accumulate = 2});
  check_selective<SmallGpt, 2, F64>({.ranks = 2, .layers = 5, .segments = 2});
  check_selective<SmallGpt, 2, F16, Tp<2>>({.ranks = 4, .dropout = 0.1});
  check_selective<SmallLlama, 3, Bf16, Tp<2>, SequenceParallel, RegatherInputs>({.ranks = 2});
}

TEST_CASE("so it does beside units within a block, and layers that run again") {
  check_selective<GptOfUnits, 3, F64, Overlap<Off>>({.ranks = 2, .dropout = 0.1});
  check_selective<GptOfFeed, 3, F64>({.ranks = 2, .dropout = 0.1});
}

TEST_CASE("a block keeps less by exactly what is recomputed") {
  constexpr Size rows = 2 * 64, norms = 2 * rows * 32, functions = rows * 4 * 32;
  const Size kept = kept_of_block<Gpt<Policy<F32>>>();
  CHECK(kept - kept_of_block<Gpt<Policy<F32, OfNorms>>>() == 4 * norms);
  CHECK(kept - kept_of_block<Gpt<Policy<F32, OfFunctions>>>() == 4 * functions);
  CHECK(kept - kept_of_block<Gpt<Policy<F32, OfNorms, OfFunctions>>>() == 4 * (norms + functions));
}
