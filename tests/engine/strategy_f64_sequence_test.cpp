// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: sequence parallelism, alone and with data parallelism, in f64.
// labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage, int Degree>
using Split = Gpt<Policy<F64, Zero<Stage>, Tp<Degree>, SequenceParallel>>;
template <int Stage>
using SequenceHalvesF64 = Split<Stage, 2>;

std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  return check_every_stage<SequenceHalvesF64>(cell, one, 1e-9, 1e-9);
}

}  // namespace

TEST_CASE("f64: sequence parallelism under every stage, with and without data ranks, follows the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  for (int ranks : {2, 4}) CHECK(parameter_gap(every_stage({.ranks = ranks}, one)[0], one) < 1e-9);
}

TEST_CASE(
    "f64: sequence parallelism with accumulation and dropout follows the one-rank curve; 0 = 1 and 2 = 3 in all bits") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  every_stage({.ranks = 4, .accumulate = 3, .dropout = 0.1}, one);
}

TEST_CASE("f64: sequences over three and four ranks follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  check_cell_of_gpt<Split<2, 3>>({.ranks = 3, .dropout = 0.1}, one, 1e-9);
  check_cell_of_gpt<Gpt<Policy<F64, Tp<4>, SequenceParallel, RegatherInputs>>>(
      {.ranks = 4, .accumulate = 2, .dropout = 0.1}, one, 1e-9);
}

TEST_CASE("f64: three tensor ranks of two replicas give the stages' bits on a transport that adds in its own order") {
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 4});
  const Cell cell{.ranks = 6, .steps = 4, .sum_order = SumOrder::transport};
  check_same_bits(check_cell_of_gpt<Split<2, 3>>(cell, one, 1e-9), check_cell_of_gpt<Split<0, 3>>(cell, one, 1e-9));
}

TEST_CASE("f64: recomputed blocks under sequence parallelism change no bit") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  const Cell cell{.ranks = 4, .accumulate = 2, .dropout = 0.1};
  const Trained again = check_cell<RecomputedGpt<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>(cell, one, 1e-9);
  const Trained kept = train<SequenceHalvesF64<3>>(cell);
  check_same_bits(again, kept);
  CHECK(again.ranks[0].replicas == kept.ranks[0].replicas);
  CHECK(again.ranks[0].peak < kept.ranks[0].peak);
}
