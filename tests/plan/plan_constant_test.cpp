// SPDX-License-Identifier: Apache-2.0
// Plans in constant expressions: the same numbers as at run time, and as the Pool measures.
// labels: engine
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr BatchSizes sizes_of(const Cell& cell, int tp) {
  return {.micro_batch = cell.samples / cell.accumulate / (cell.ranks / tp),
          .sequence = cell.sequence,
          .accumulate = cell.accumulate};
}

constexpr PlanOptions options_of(const Cell& cell, Size element_bytes, int tp, int rank) {
  return {.data = cell.ranks / tp,
          .bucket_bytes = cell.bucket_elements * element_bytes,
          .rank = {.data = rank / tp, .tp = rank % tp}};
}

using Gathered = Gpt<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>;
constexpr Cell gathered_cell{.ranks = 4, .accumulate = 3, .steps = 2};
constexpr Plan gathered_first =
    plan<Gathered>(small_gpt(), sizes_of(gathered_cell, 2), options_of(gathered_cell, 2, 2, 0));
constexpr Plan gathered_last =
    plan<Gathered>(small_gpt(), sizes_of(gathered_cell, 2), options_of(gathered_cell, 2, 2, 3));

using Whole = RecomputedGpt<Policy<F64>>;
constexpr Cell whole_cell{.ranks = 3, .steps = 2};
constexpr Plan whole = plan<Whole>(small_gpt(), sizes_of(whole_cell, 1), options_of(whole_cell, 8, 1, 1));

// what a constant expression can decide with it
static_assert(whole.fits(whole.peak) && !whole.fits(whole.peak - 1));
static_assert(gathered_first.parameters == whole.parameters);
static_assert(gathered_first.resident < whole.resident / 6);
static_assert(whole.traffic_along.tp.total() == 0);
static_assert(gathered_first.replica_traffic.calls(Collective::all_reduce, Purpose::gradient) == 0);

// Hugging Face's gpt2 and gpt2-xl: 124,439,808 and 1,557,611,200 parameters
constexpr GptConfig gpt2{.layers = 12, .width = 768, .heads = 12, .vocabulary = 50257, .sequence = 1024};
constexpr GptConfig gpt2_xl{.layers = 48, .width = 1600, .heads = 25, .vocabulary = 50257, .sequence = 1024};
constexpr BatchSizes large{.micro_batch = 1, .sequence = 1024};
static_assert(plan<Gpt<Policy<Bf16, Zero<2>>>>(gpt2, large, {.data = 64}).parameters == 124439808);
static_assert(plan<Gpt<Policy<F16, Zero<2>>>>(gpt2, large, {.data = 64}).peak ==
              plan<Gpt<Policy<Bf16, Zero<2>>>>(gpt2, large, {.data = 64}).peak);
static_assert(plan<Gpt<Policy<Bf16, Zero<3>>>>(gpt2_xl, large, {.data = 64}).parameters == 1557611200);

}  // namespace

TEST_CASE("a plan in a constant expression is what the Pool and the communicators of a run measure") {
  const auto measured = train<Gathered>(gathered_cell);
  check_plan(gathered_first, measured.ranks[0], 0);
  check_plan(gathered_last, measured.ranks[3], 3);
  check_plan(whole, train<Whole>(whole_cell).ranks[1], 1);
}

// The operations of a Gpt; a multiply and an add count two. Moves (reshape, slice, the look-up, collectives and the
// sums inside of them) count nothing, nor do the exponentials inside of attention.
//
//   operation         for each                              forward                  backward
//   product           row, in and out                       2                        4: dx and dW
//   bias              element of y                          1                        1: a sum over the rows
//   positions         element of x                          1                        1: a sum over the batch
//   look-up           element of y                          0: copies                1: a sum over equal ids
//   residual sum      element of x                          1                        1: of the two branches' dx
//   dropout           element of x                          2                        2
//   LayerNorm         element of x                          8                        16
//   gelu              element of x                          8                        14
//   attention         query, key it sees, feature of v      4: logits and values     10: logits again, dv, dp, dq, dk
//   cross-entropy     score                                 5                        4
//                     row, and each rank's part of it       4                        0
namespace {

struct Flops {
  double forward = 0, backward = 0;
  constexpr Flops operator+(const Flops& other) const { return {forward + other.forward, backward + other.backward}; }
  constexpr Flops operator*(double times) const { return {times * forward, times * backward}; }
};

/// One rank's operations in a step: `rows` tokens, `split_rows` of them in its part of the residual stream.
struct GptFormula {
  double rows, split_rows, sequence;
  double layers, width, ffn_width, words;  ///< words: this rank's, with padding
  double tp = 1;
  bool dropout = false;

  static constexpr Flops product(double n, double in, double out) { return {2 * n * in * out, 4 * n * in * out}; }
  static constexpr Flops bias(double elements) { return {elements, elements}; }
  static constexpr Flops linear(double n, double in, double out) { return product(n, in, out) + bias(n * out); }
  static constexpr Flops gelu(double elements) { return {8 * elements, 14 * elements}; }

  // over the residual stream
  constexpr double stream() const { return split_rows * width; }
  constexpr Flops norm() const { return {8 * stream(), 16 * stream()}; }
  constexpr Flops sum() const { return {stream(), stream()}; }
  constexpr Flops drop() const { return dropout ? Flops{2 * stream(), 2 * stream()} : Flops{}; }

  /// Every query attends to itself and earlier positions: (sequence + 1) / 2 keys on average.
  constexpr Flops attention() const {
    const double seen = rows * (sequence + 1) / 2 * (width / tp);
    return {4 * seen, 10 * seen};
  }
  constexpr Flops block() const {
    const Flops attention_part = norm() + linear(rows, width, 3 * width / tp) + attention() +
                                 product(rows, width / tp, width) + bias(stream()) + drop() + sum();
    const Flops mlp_part = norm() + linear(rows, width, ffn_width / tp) + gelu(rows * ffn_width / tp) +
                           product(rows, ffn_width / tp, width) + bias(stream()) + drop() + sum();
    return attention_part + mlp_part;
  }
  constexpr Flops step() const {
    const Flops look_up{0, rows * width}, positions{stream(), stream()};
    const Flops loss{5 * rows * words + 4 * rows * tp, 4 * rows * words};
    return look_up + positions + drop() + block() * layers + norm() + product(rows, width, words) + loss;
  }
  /// Blocks under Recompute run forward once more in backward.
  constexpr Flops recomputed_step() const { return step() + Flops{0, layers * block().forward}; }
};

/// small_gpt() on batches of [12, 12].
constexpr GptFormula small_formula{
    .rows = 144, .split_rows = 144, .sequence = 12, .layers = 2, .width = 24, .ffn_width = 96, .words = 61};

template <class Model>
void check_flops(const Flops& formula, int tp_rank = 0, double dropout = 0) {
  const Plan paper = plan<Model>(small_gpt(dropout), {.micro_batch = 12, .sequence = 12}, {.rank = {.tp = tp_rank}});
  CHECK(paper.forward_flops == formula.forward);
  CHECK(paper.backward_flops == formula.backward);
  CHECK(paper.flops() == formula.forward + formula.backward);
}

}  // namespace

TEST_CASE("a plan's operations are those of the formula, to the last one") {
  using P = Policy<F64>;
  check_flops<Gpt<P>>(small_formula.step());
  check_flops<RecomputedGpt<P>>(small_formula.recomputed_step());
  GptFormula dropped = small_formula;
  dropped.dropout = true;
  check_flops<Gpt<P>>(dropped.step(), 0, 0.1);
}

TEST_CASE(
    "over Tp a rank's operations are those of the formula: products, heads and vocabulary are cut, the residual stream "
    "is not") {
  GptFormula half = small_formula;
  half.tp = 2;
  half.words = 31;  // 61 and one of padding
  for (const int rank : {0, 1}) check_flops<Gpt<Policy<F64, Tp<2>>>>(half.step(), rank);
  check_flops<RecomputedGpt<Policy<F64, Tp<2>>>>(half.recomputed_step());
  half.split_rows = 72;  // under SequenceParallel it is
  check_flops<Gpt<Policy<F64, Tp<2>, SequenceParallel>>>(half.step());
}

TEST_CASE("gpt2's operations are 6 a parameter and token, 7 products of attention, and less than 0.3 % besides") {
  const Plan paper = plan<Gpt<Policy<Bf16>>>(gpt2, {.micro_batch = 1, .sequence = 1024});
  const double in_products = static_cast<double>(paper.parameters - 1024 * 768);  // positions are added, not multiplied
  const double expected = 1024 * (6 * in_products + 7 * 12 * 768 * 1025);
  CHECK(paper.flops() > expected);
  CHECK(paper.flops() < 1.003 * expected);
}

TEST_CASE("under Zero<3> the memory beside the shards does not grow with the number of blocks") {
  const auto beside = [](int layers, Category category) {
    GptConfig config = small_gpt();
    config.layers = layers;
    const Plan paper = plan<RecomputedGpt<Policy<F32, Zero<3>>>>(config, {.micro_batch = 1, .sequence = 12},
                                                                 {.data = 4, .bucket_bytes = 8000});
    return paper.by_category[category] - paper.state[category];
  };
  CHECK(beside(4, Category::parameters) == beside(16, Category::parameters));
  // gradients: what is reduced stays until the step and is split; the rest is one block's and what is in flight
  const auto reduced = [](int layers) { return layers * (12 * 24 * 24 + 13 * 24) * 4 / 4; };
  const Size growth = beside(16, Category::gradients) - beside(4, Category::gradients);
  CHECK(growth >= reduced(16) - reduced(4));
  CHECK(growth < 1.05 * (reduced(16) - reduced(4)));
}
