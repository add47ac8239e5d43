// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: sequence parallelism, alone and with data parallelism, in f64.
// labels: thread matrix
#include <laws/strategy.hpp>
#include <laws/tensor_traffic.hpp>

using namespace dspp;
using namespace dspp::laws;

extern template Trained dspp::laws::train<Gpt<Policy<F64>>>(const Cell&);

namespace {

template <int Stage, int Degree = 2>
using Split = Gpt<Policy<F64, Zero<Stage>, Tp<Degree>, SequenceParallel>>;

template <class Model>
Trained check(const Cell& cell, const Trained& one) {
  Trained trained = check_cell<Model>(cell, one, 1e-9);
  check_tensor_traffic(trained);
  return trained;
}

std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  return {check<Split<0>>(cell, one), check<Split<1>>(cell, one), check<Split<2>>(cell, one),
          check<Split<3>>(cell, one)};
}

}  // namespace

TEST_CASE("f64: sequence parallelism under every stage, with and without data ranks, follows the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  for (int ranks : {2, 4}) {
    const auto stages = every_stage({.ranks = ranks}, one);
    for (int stage = 1; stage < 4; ++stage) check_same_bits(stages[static_cast<std::size_t>(stage)], stages[0]);
    CHECK(parameter_gap(stages[0], one) < 1e-9);
  }
}

TEST_CASE(
    "f64: sequence parallelism with accumulation and dropout follows the one-rank curve; 0 = 1 and 2 = 3 in all bits") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  const auto stages = every_stage({.ranks = 4, .accumulate = 3, .dropout = 0.1}, one);
  check_same_bits(stages[1], stages[0]);
  check_same_bits(stages[3], stages[2]);
  CHECK(parameter_gap(stages[2], stages[0]) < 1e-9);
}

TEST_CASE("f64: sequences over three and four ranks follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  check<Split<2, 3>>({.ranks = 3, .dropout = 0.1}, one);
  check<Gpt<Policy<F64, Tp<4>, SequenceParallel, RegatherInputs>>>({.ranks = 4, .accumulate = 2, .dropout = 0.1}, one);
}

TEST_CASE("f64: recomputed blocks under sequence parallelism change no bit") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  const Cell cell{.ranks = 4, .accumulate = 2, .dropout = 0.1};
  const Trained again = check_cell<RecomputedGpt<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>(cell, one, 1e-9);
  const Trained kept = train<Split<3>>(cell);
  check_same_bits(again, kept);
  CHECK(again.ranks[0].data == kept.ranks[0].data);
  CHECK(again.ranks[0].peak < kept.ranks[0].peak);
}
