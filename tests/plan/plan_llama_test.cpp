// SPDX-License-Identifier: Apache-2.0
// The plan of a Llama in constant expressions: sizes of published models, and every operation of a step by formula.
// labels: engine
#include <laws/small_llama.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

// Llama 2 7B and Llama 3 8B as published: 6,738,415,616 and 8,030,261,248 parameters
constexpr LlamaConfig llama2_7b{
    .layers = 32, .width = 4096, .heads = 32, .ffn_width = 11008, .vocabulary = 32000, .epsilon = 1e-5};
constexpr LlamaConfig llama3_8b{.layers = 32,
                                .width = 4096,
                                .heads = 32,
                                .kv_heads = 8,
                                .ffn_width = 14336,
                                .vocabulary = 128256,
                                .rope_theta = 500000,
                                .epsilon = 1e-5};
constexpr BatchSizes large{.micro_batch = 1, .sequence = 4096};
static_assert(plan<Llama<Policy<Bf16, Zero<2>>>>(llama2_7b, large, {.data = 64}).parameters == 6738415616);
static_assert(plan<Llama<Policy<Bf16, Zero<3>>>>(llama3_8b, large, {.data = 64}).parameters == 8030261248);

constexpr LlamaConfig small = small_config<LlamaConfig>(0);
using Gathered = RecomputedLlama<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>;
constexpr Cell gathered_cell{.ranks = 4, .accumulate = 3, .steps = 2};
constexpr Plan gathered =
    plan<Gathered>(small, {.micro_batch = 2, .sequence = 12, .accumulate = 3},
                   {.data = 2, .bucket_bytes = gathered_cell.bucket_elements * 2, .rank = {.data = 1, .tp = 1}});

struct Flops {
  double forward = 0, backward = 0;
  constexpr Flops operator+(const Flops& other) const { return {forward + other.forward, backward + other.backward}; }
  constexpr Flops operator*(double times) const { return {times * forward, times * backward}; }
};

/// One rank's operations in a step, as plan_constant_test counts those of a Gpt; besides:
///
///   operation         for each                              forward                  backward
///   RmsNorm           element of x                          4                        11
///   rotation          element of q and k                    3                        3
///   swiglu            element of y                          5                        13
///   both projections  element of their x                                             1: the sum of their dx
struct LlamaFormula {
  double rows, split_rows;  ///< tokens; those in this rank's part of the residual stream
  double tp = 1, words = 61;
  static constexpr double sequence = 12, layers = 2, width = 24, q = 48, kv = 24, inner = 48;

  static constexpr Flops product(double n, double in, double out) { return {2 * n * in * out, 4 * n * in * out}; }
  constexpr double stream() const { return split_rows * width; }
  constexpr Flops norm() const { return {4 * stream(), 11 * stream()}; }
  constexpr Flops sum() const { return {stream(), stream()}; }
  constexpr Flops attention() const {
    const double seen = rows * (sequence + 1) / 2 * (q / tp), turned = 3 * rows * (q + kv) / tp;
    return Flops{4 * seen, 10 * seen} + Flops{turned, turned} + Flops{0, rows * width} +
           product(rows, width, (q + 2 * kv) / tp) + product(rows, q / tp, width);
  }
  constexpr Flops mlp() const {
    const double gated = rows * inner / tp;
    return product(rows, width, 2 * inner / tp) + Flops{5 * gated, 13 * gated} + product(rows, inner / tp, width);
  }
  constexpr Flops block() const { return norm() + attention() + sum() + norm() + mlp() + sum(); }
  constexpr Flops step() const {
    const Flops look_up{0, rows * width}, loss{5 * rows * words + 4 * rows * tp, 4 * rows * words};
    return look_up + block() * layers + norm() + product(rows, width, words) + loss;
  }
};

template <class Model>
void check_flops(const Flops& formula) {
  const Plan paper = plan<Model>(small, {.micro_batch = 12, .sequence = 12});
  CHECK(paper.forward_flops == formula.forward);
  CHECK(paper.backward_flops == formula.backward);
}

}  // namespace

TEST_CASE("a Llama of 70 B parameters on 512 ranks is planned at run time") {
  const LlamaConfig llama3_70b{
      .layers = 80, .width = 8192, .heads = 64, .kv_heads = 8, .ffn_width = 28672, .vocabulary = 128256};
  using P = Policy<Bf16, Zero<3>, Tp<8>, SequenceParallel>;
  auto paper = plan<Llama<P>>(llama3_70b, large, {.data = 64});
  CHECK(paper.parameters == 70553706496);  // as published
  // a rank's share of masters, moments and values in bf16
  CHECK(paper.resident >= paper.parameters / 512 * 14);
  CHECK(paper.resident <= paper.parameters / 512 * 14 + 32_MiB);
}

TEST_CASE("a Llama's plan in a constant expression is what the Pool and the communicators of a run measure") {
  check_plan(gathered, train<Gathered>(gathered_cell).ranks[3], 3);
}

TEST_CASE("a Llama's plan counts the operations of the formula, to the last one, on one rank and over Tp") {
  check_flops<Llama<Policy<F64>>>(LlamaFormula{.rows = 144, .split_rows = 144}.step());
  check_flops<Llama<Policy<F64, Tp<2>>>>(LlamaFormula{.rows = 144, .split_rows = 144, .tp = 2, .words = 31}.step());
  check_flops<Llama<Policy<F64, Tp<2>, SequenceParallel>>>(
      LlamaFormula{.rows = 144, .split_rows = 72, .tp = 2, .words = 31}.step());
}

TEST_CASE("grouped heads keep less: keys and values of a quarter of the heads") {
  const auto kept = [](Size kv_heads) {
    LlamaConfig config = small;
    config.kv_heads = kv_heads;
    return plan<Llama<Policy<F32>>>(config, {.micro_batch = 12, .sequence = 12}).by_category[Category::activations];
  };
  CHECK(kept(6) == kept(24) - 2 * 144 * 2 * 36 * 4);  // two layers' k and v of 18 heads of two features less
}
