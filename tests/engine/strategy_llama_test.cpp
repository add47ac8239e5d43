// SPDX-License-Identifier: Apache-2.0
// A Llama in the strategy matrix: the laws of small_gpt's cells for rotary positions, grouped heads, SwiGLU and a head
// of its own. labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class Model>
Trained check(const Cell& cell, const Trained& one) {
  Trained trained = check_cell<Model>(cell, one, 1e-9);
  check_tensor_traffic(trained, sizes_of(small_config_of<Model>()));
  CHECK(parameter_gap(trained, one) < 1e-9);
  return trained;
}

const Trained& one_rank() {
  static const Trained trained = train<Llama<Policy<F64>>>({});
  return trained;
}

}  // namespace

TEST_CASE("f64: a Llama learns, and costs what its plan says on one rank") {
  check_learns(one_rank(), 0.75);
  check_same_bits(check<Llama<Policy<F64>>>({}, one_rank()), one_rank());
}

TEST_CASE("f64: a Llama under stages 0 and 3 on 2, 3 and 4 ranks follows the one-rank curve, in the same bits") {
  for (int ranks : {2, 3, 4}) {
    const Trained kept = check<Llama<Policy<F64>>>({.ranks = ranks}, one_rank());
    check_same_bits(check<Llama<Policy<F64, Zero<3>>>>({.ranks = ranks}, one_rank()), kept);
  }
}

TEST_CASE("f64: a Llama over two tensor ranks, whole and split along the sequence, follows the one-rank curve") {
  for (int ranks : {2, 4}) {
    check<Llama<Policy<F64, Tp<2>>>>({.ranks = ranks}, one_rank());
    check<Llama<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>({.ranks = ranks}, one_rank());
  }
  check<Llama<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>({.ranks = 4, .accumulate = 3}, one_rank());
}

TEST_CASE("f64: a Llama over three and four tensor ranks follows the one-rank curve") {
  check<Llama<Policy<F64, Zero<3>, Tp<3>>>>({.ranks = 3}, one_rank());
  check<Llama<Policy<F64, Tp<4>, SequenceParallel>>>({.ranks = 4}, one_rank());
}

TEST_CASE("f64: recomputing a Llama's blocks changes no bit and lowers the peak") {
  const Cell cell{.ranks = 2, .accumulate = 2};
  const Trained kept = check<Llama<Policy<F64, Zero<3>>>>(cell, one_rank());
  const Trained again = check<RecomputedLlama<Policy<F64, Zero<3>>>>(cell, one_rank());
  check_same_bits(again, kept);
  CHECK(again.ranks[0].peak < kept.ranks[0].peak);
}

TEST_CASE("f64: a Llama with one table for both ends follows its own one-rank curve") {
  const Trained one = train<TiedLlama<Policy<F64>>>({});
  CHECK(one.ranks[0].parameters + 1 == one_rank().ranks[0].parameters);
  check<TiedLlama<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>({.ranks = 4}, one);
}

TEST_CASE("f64: a Llama with a window, biases, normed queries and keys and scaled angles follows its one-rank curve") {
  const Trained one = train<Llama<Policy<F64>>>({.steps = 5, .llama_options = true});
  CHECK(one.ranks[0].parameters == one_rank().ranks[0].parameters + 2 * 4);  // of each of two blocks
  CHECK(relative_gap(one.losses, train<Llama<Policy<F64>>>({.steps = 5}).losses) > 1e-6);
  const auto check = [&]<class P>(P, Cell cell) {
    cell.steps = 5, cell.llama_options = true;
    Trained trained = check_cell<Llama<P>>(cell, one, 1e-9);
    CHECK(parameter_gap(trained, one) < 1e-9);
    return trained;
  };
  const Trained kept = check(Policy<F64>(), {.ranks = 2});
  check_same_bits(check(Policy<F64, Zero<1>>(), {.ranks = 2}), kept);
  check_same_bits(check(Policy<F64, Zero<2>>(), {.ranks = 2}), kept);
  check_same_bits(check(Policy<F64, Zero<3>>(), {.ranks = 2}), kept);
  check(Policy<F64, Tp<2>>(), {.ranks = 4, .accumulate = 3});
  check(Policy<F64, Zero<3>, Tp<2>, SequenceParallel>(), {.ranks = 2});
}

TEST_CASE("bf16: a Llama costs what its plan says, and stays near the f64 curve") {
  // 20 steps in bf16: as a GPT's in strategy_bf16_test
  check_cell<Llama<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>>({.ranks = 4}, one_rank(), 2e-2);
}

TEST_CASE("f16: a Llama costs what its plan says, skips no step, and stays near the f64 curve") {
  // The first step's loss and norm are as close as a GPT's in strategy_f16_test. Then Adam's step differs by more than
  // a fifth for 5 to 11 of 17,000 parameters, whose gradients are nearly 0 (bf16: about 50). Over 20 steps this grew to
  // between 1e-4 and 8e-3 in the loss and 3e-3 and 0.11 in the norm, from one seed to another.
  const Trained f16 = check_cell<Llama<Policy<F16, Zero<3>, Tp<2>, SequenceParallel>>>({.ranks = 4}, one_rank(), 2e-2);
  CHECK(std::abs(f16.losses[0] / one_rank().losses[0] - 1) < 1e-5);
  CHECK(std::abs(f16.norms[0] / one_rank().norms[0] - 1) < 2e-4);
  for (const RankRecord& record : f16.ranks) CHECK(record.loss_scale == 65536);
}
