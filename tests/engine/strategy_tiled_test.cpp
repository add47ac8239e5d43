// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: linear layers in tiles, each tile a unit inside its block's.
// labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage>
using TiledWhole = TiledGpt<Policy<F64, Zero<Stage>>>;
template <int Stage>
using TiledHalves = TiledGpt<Policy<F64, Zero<Stage>, Tp<2>>>;

}  // namespace

TEST_CASE("f64: tiles under every stage follow the untiled one-rank curve, and their stages share bits") {
  const Trained one = train<PlainGpt<Policy<F64>>>({.dropout = 0.1});
  for (int ranks : {1, 2, 3})
    CHECK(parameter_gap(check_every_stage<TiledWhole>({.ranks = ranks, .dropout = 0.1}, one, 1e-9, 1e-9)[3], one) <
          1e-9);
}

TEST_CASE("f64: tiles of slices under every stage follow the untiled one-rank curve, and move what slices do") {
  const Trained one = train<PlainGpt<Policy<F64>>>({});
  for (int ranks : {2, 4})
    CHECK(parameter_gap(check_every_stage<TiledHalves>({.ranks = ranks, .accumulate = 2}, one, 1e-9, 1e-9)[3], one) <
          1e-9);
}

TEST_CASE("f64: tiles under SequenceParallel follow it, too") {
  const Trained one = train<PlainGpt<Policy<F64>>>({});
  check_cell_of_gpt<TiledGpt<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>({.ranks = 4}, one, 1e-9);
}

TEST_CASE("bf16: tiles cost what their plan says, and stay near the untiled f64 curve") {
  // 20 steps in bf16: as a GPT's in strategy_bf16_test
  const Trained one = train<PlainGpt<Policy<F64>>>({});
  for (Size accumulate : {1, 2})
    check_cell_of_gpt<TiledGpt<Policy<Bf16, Zero<3>, Tp<2>>>>({.ranks = 4, .accumulate = accumulate}, one, 2e-2);
}
