// SPDX-License-Identifier: Apache-2.0
// What holds bit for bit holds in f16 too, with f32 masters and a loss scale; and every f16 plan is exact.
// labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage, class... More>
using F16Gpt = Gpt<Policy<F16, Zero<Stage>, More...>>;

/// f16 rounds to 2^-11 at every operation. The first step's loss and norm are within 1e-5 and 2e-4; then Adam's first
/// steps, which are as long for small gradients as for large ones, make the curves diverge: over 20 steps up to 1.8e-3
/// in the loss and 4e-2 in the norm were measured (bf16: 3e-3 and 7e-2; f32: 2e-6 and 4e-5).
constexpr double bound = 0.005, first_loss = 1e-5, first_norm = 2e-4;

template <class Model>
Trained check(const Cell& cell, const Trained& one) {
  Trained trained = check_cell_of_gpt<Model>(cell, one, bound);
  CHECK(std::abs(trained.losses[0] / one.losses[0] - 1) < first_loss);
  CHECK(std::abs(trained.norms[0] / one.norms[0] - 1) < first_norm);
  for (const RankRecord& record : trained.ranks) CHECK(record.loss_scale == 65536);
  return trained;
}

std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  std::array<Trained, 4> stages{check<F16Gpt<0>>(cell, one), check<F16Gpt<1>>(cell, one), check<F16Gpt<2>>(cell, one),
                                check<F16Gpt<3>>(cell, one)};
  check_stage_bits(stages, bound);
  return stages;
}

}  // namespace

TEST_CASE("f16: one rank follows the curve of f32") {
  const Trained f32 = train<Gpt<Policy<F32>>>({}), f16 = train<F16Gpt<0>>({});
  CHECK(relative_gap(f16.losses, f32.losses) < bound);
  CHECK(relative_gap(f16.norms, f32.norms) < 10 * bound);
}

TEST_CASE("f16: over 1, 2 and 3 data ranks all stages give the same bits and follow the one-rank curve") {
  const Trained one = train<F16Gpt<0>>({});
  for (int ranks : {1, 2, 3}) every_stage({.ranks = ranks}, one);
}

TEST_CASE("f16: with accumulation gradients are f32 and stages 0 = 1 and 2 = 3 in all bits") {
  const Trained one = train<F16Gpt<0>>({});
  every_stage({.ranks = 2, .accumulate = 3}, one);
}

TEST_CASE("f16: over two tensor ranks with split sequences and dropout stages give the same bits, recomputed or kept") {
  const Trained one = train<F16Gpt<0>>({.dropout = 0.1});
  for (int ranks : {2, 4}) {
    const Cell cell{.ranks = ranks, .dropout = 0.1};
    const Trained whole = check<F16Gpt<0, Tp<2>, SequenceParallel>>(cell, one);
    check_same_bits(check<F16Gpt<3, Tp<2>, SequenceParallel>>(cell, one), whole);
    if (ranks == 4)
      check_same_bits(check_cell<RecomputedGpt<Policy<F16, Zero<3>, Tp<2>, SequenceParallel>>>(cell, one, bound),
                      whole);
  }
}

TEST_CASE("f16: a scale that starts too high falls in the same steps under every stage, on a far device too") {
  const Cell cell{.ranks = 3, .steps = 20, .loss_scale = {.initial = 0x1p24}};
  const Trained whole = train_near_and_far<F16Gpt<0>>(cell);
  CHECK(whole.ranks[0].skipped > 2);
  CHECK(whole.ranks[0].skipped < 12);
  CHECK(whole.losses.back() < 0.9 * whole.losses.front());
  for (const Trained& split : {train_near_and_far<F16Gpt<1>>(cell), train_near_and_far<F16Gpt<2>>(cell),
                               train_near_and_far<F16Gpt<3>>(cell)}) {
    CHECK(split.losses == whole.losses);
    CHECK(split.parameters == whole.parameters);
    for (const RankRecord& record : split.ranks) {
      CHECK(record.skipped == whole.ranks[0].skipped);
      CHECK(record.loss_scale == whole.ranks[0].loss_scale);
    }
  }
  // the first overflow uses up the hysteresis, each further one halves
  CHECK(whole.ranks[0].loss_scale == std::ldexp(0x1p24, 1 - static_cast<int>(whole.ranks[0].skipped)));
}
