// SPDX-License-Identifier: Apache-2.0
// What holds bit for bit holds in bf16 too, with f32 masters; and every bf16 plan is exact.
// labels: thread races matrix
#include <laws/strategy.hpp>
#include <laws/tensor_traffic.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage, class... More>
using Bf16Gpt = Gpt<Policy<Bf16, Zero<Stage>, More...>>;

/// bf16 rounds to 2^-9 at every operation: the curve is followed loosely, bytes and bits are exact.
constexpr double loose = 0.02;

template <class Model>
Trained check(const Cell& cell, const Trained& one) {
  Trained trained = check_cell<Model>(cell, one, loose);
  check_tensor_traffic(trained);
  return trained;
}

template <class... More>
std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  return {check<Bf16Gpt<0, More...>>(cell, one), check<Bf16Gpt<1, More...>>(cell, one),
          check<Bf16Gpt<2, More...>>(cell, one), check<Bf16Gpt<3, More...>>(cell, one)};
}

}  // namespace

TEST_CASE("bf16: all stages give the same bits without accumulation, and follow the one-rank curve loosely") {
  const Trained one = train<Bf16Gpt<0>>({});
  for (int ranks : {1, 2, 3, 4}) {
    const auto stages = every_stage({.ranks = ranks}, one);
    for (int stage = 1; stage < 4; ++stage) check_same_bits(stages[static_cast<std::size_t>(stage)], stages[0]);
  }
}

TEST_CASE("bf16: the same on a transport with its own sum order, with sequence parallelism too") {
  const Trained one = train<Bf16Gpt<0>>({.steps = 4});
  const auto stages = every_stage({.ranks = 3, .steps = 4, .sum_order = SumOrder::transport}, one);
  for (int stage = 1; stage < 4; ++stage) check_same_bits(stages[static_cast<std::size_t>(stage)], stages[0]);
  const Cell cell{.ranks = 4, .steps = 4, .sum_order = SumOrder::transport};
  const Trained stage0 = check<Bf16Gpt<0, Tp<2>, SequenceParallel>>(cell, one);
  check_same_bits(check<Bf16Gpt<3, Tp<2>, SequenceParallel>>(cell, one), stage0);
}

TEST_CASE("bf16: the same for stages 0 and 3 on 8 ranks; two tensor ranks in 4 replicas follow") {
  const Cell eight{.ranks = 8, .steps = 2, .samples = 16};
  const Trained one = train<Bf16Gpt<0>>({.steps = 2, .samples = 16});
  const Trained stage0 = check<Bf16Gpt<0>>(eight, one);
  check_same_bits(check<Bf16Gpt<3>>(eight, one), stage0);
  check<Bf16Gpt<3, Tp<2>, SequenceParallel>>(eight, one);
}

TEST_CASE("bf16: with accumulation gradients are f32 and stages 0 = 1 and 2 = 3 in all bits") {
  const Trained one = train<Bf16Gpt<0>>({});
  for (const Cell& cell : {Cell{.ranks = 2, .accumulate = 3}, Cell{.ranks = 4, .accumulate = 3}}) {
    const auto stages = every_stage(cell, one);
    check_same_bits(stages[1], stages[0]);
    check_same_bits(stages[3], stages[2]);
  }
}

TEST_CASE("bf16: with accumulation the two pairs of stages agree to 1e-5 in norm and masters after a step") {
  // They add the same f32 summands in two orders. From then on a value near a rounding boundary may round to either
  // bf16 neighbour: over 20 steps the losses differ by 2e-4, as for any two orders of summation.
  for (int ranks : {2, 4}) {
    const Cell cell{.ranks = ranks, .accumulate = 3, .steps = 1};
    const Trained early = train<Bf16Gpt<0>>(cell), late = train<Bf16Gpt<2>>(cell);
    CHECK(relative_gap(late.norms, early.norms) < 1e-5);
    CHECK(parameter_gap(late, early) < 1e-5);
    CHECK(late.losses == early.losses);
  }
}

TEST_CASE("bf16: sequence parallelism and two data ranks give the same bits under stages 0 and 3, recomputed or kept") {
  const Trained one = train<Bf16Gpt<0>>({.dropout = 0.1});
  const Cell cell{.ranks = 4, .dropout = 0.1};
  const Trained stage0 = check<Bf16Gpt<0, Tp<2>, SequenceParallel>>(cell, one);
  const Trained stage3 = check<Bf16Gpt<3, Tp<2>, SequenceParallel>>(cell, one);
  check_same_bits(stage3, stage0);
  const Trained again = check_cell<RecomputedGpt<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>>(cell, one, loose);
  check_same_bits(again, stage3);
}

TEST_CASE("bf16: two runs with one seed give the same bits on every rank, two seeds do not") {
  const Cell cell{.ranks = 4, .accumulate = 3, .dropout = 0.1};
  const Trained first = train<Bf16Gpt<3, Tp<2>, SequenceParallel>>(cell);
  const Trained second = train<Bf16Gpt<3, Tp<2>, SequenceParallel>>(cell);
  check_same_bits(first, second);
  for (std::size_t r = 0; r < 4; ++r) CHECK(first.ranks[r].values_print == second.ranks[r].values_print);
  Cell other = cell;
  other.seed = 6;
  CHECK(differ(train<Bf16Gpt<3, Tp<2>, SequenceParallel>>(other).losses, first.losses));
}
