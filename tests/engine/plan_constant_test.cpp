// SPDX-License-Identifier: Apache-2.0
// Plans in constant expressions: the same numbers as at run time, and as the Pool measures.
// labels: thread
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr PlanOptions options_of(const Cell& cell, Size element_bytes, int tp, int rank) {
  const int data = cell.ranks / tp;
  return {.micro_batch = cell.samples / cell.accumulate / data,
          .sequence = cell.sequence,
          .data = data,
          .accumulate = cell.accumulate,
          .bucket_bytes = cell.bucket_elements * element_bytes,
          .data_rank = rank / tp,
          .tp_rank = rank % tp};
}

using Gathered = Gpt<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>;
constexpr Cell gathered_cell{.ranks = 4, .accumulate = 3, .steps = 2};
constexpr Plan gathered_first = plan<Gathered>(small_gpt(), options_of(gathered_cell, 2, 2, 0));
constexpr Plan gathered_last = plan<Gathered>(small_gpt(), options_of(gathered_cell, 2, 2, 3));

using Whole = RecomputedGpt<Policy<F64>>;
constexpr Cell whole_cell{.ranks = 3, .steps = 2};
constexpr Plan whole = plan<Whole>(small_gpt(), options_of(whole_cell, 8, 1, 1));

// what a constant expression can decide with it
static_assert(whole.fits(whole.peak) && !whole.fits(whole.peak - 1));
static_assert(gathered_first.parameters == whole.parameters);
static_assert(gathered_first.resident < whole.resident / 6);
static_assert(whole.tp_traffic.total() == 0);
static_assert(gathered_first.data_traffic.calls(Collective::all_reduce, Purpose::gradient) == 0);

// Hugging Face's gpt2 and gpt2-xl: 124,439,808 and 1,557,611,200 parameters
constexpr GptConfig gpt2{.layers = 12, .width = 768, .heads = 12, .vocabulary = 50257, .sequence = 1024};
constexpr GptConfig gpt2_xl{.layers = 48, .width = 1600, .heads = 25, .vocabulary = 50257, .sequence = 1024};
constexpr PlanOptions large{.micro_batch = 1, .sequence = 1024, .data = 64};
static_assert(plan<Gpt<Policy<Bf16, Zero<2>>>>(gpt2, large).parameters == 124439808);
static_assert(plan<Gpt<Policy<Bf16, Zero<3>>>>(gpt2_xl, large).parameters == 1557611200);

}  // namespace

TEST_CASE("a plan in a constant expression is what the Pool and the communicators of a run measure") {
  const auto measured = train<Gathered>(gathered_cell);
  check_plan(gathered_first, measured.ranks[0], 0);
  check_plan(gathered_last, measured.ranks[3], 3);
  check_plan(whole, train<Whole>(whole_cell).ranks[1], 1);
}

TEST_CASE("a plan's operations are those of the formula: 6 per parameter and token, and attention's products") {
  // every product of a Gpt: 2 in out per row forward, twice that backward; scores and values: 2 products of
  // sequence x sequence x width forward, 5 backward (the scores again), half of them masked but counted by tiles
  const Size tokens = 12 * 12;
  const Plan paper = plan<Gpt<Policy<F64>>>(small_gpt(), {.micro_batch = 12, .sequence = 12});
  const double weights = 2 * (4 * 24 * 24 + 2 * 24 * 96) + 61 * 24;
  const double products = 2.0 * static_cast<double>(tokens) * weights;
  CHECK(paper.forward_flops >= products);
  CHECK(paper.forward_flops < 1.5 * products);
  CHECK(paper.backward_flops >= 2 * products);
  CHECK(paper.backward_flops < 3.2 * products);
}

TEST_CASE("under Zero<3> the memory beside the shards does not grow with the number of blocks") {
  const auto beside = [](int layers, Category category) {
    GptConfig config = small_gpt();
    config.layers = layers;
    const Plan paper = plan<RecomputedGpt<Policy<F32, Zero<3>>>>(
        config, {.micro_batch = 1, .sequence = 12, .data = 4, .bucket_bytes = 8000});
    return paper.by_category[category] - paper.state[category];
  };
  CHECK(beside(4, Category::parameters) == beside(16, Category::parameters));
  // gradients: what is reduced stays until the step and is split; the rest is one block's and what is in flight
  const auto reduced = [](int layers) { return layers * (12 * 24 * 24 + 13 * 24) * 4 / 4; };
  const Size growth = beside(16, Category::gradients) - beside(4, Category::gradients);
  CHECK(growth >= reduced(16) - reduced(4));
  CHECK(growth < 1.05 * (reduced(16) - reduced(4)));
}
