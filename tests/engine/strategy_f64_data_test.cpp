// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: data parallelism in f64. 6 of its 24 policies are named here, counting Recompute.
// labels: thread matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage>
using DataF64 = Gpt<Policy<F64, Zero<Stage>>>;

std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  return check_every_stage<DataF64>(cell, one, 1e-9, 1e-9);
}

}  // namespace

TEST_CASE("f64: every stage on 1 to 4 ranks follows the one-rank curve, in the same bits without accumulation") {
  const Trained one = train<DataF64<0>>({});
  check_learns(one, 0.75);
  for (int ranks : {1, 2, 3, 4}) CHECK(parameter_gap(every_stage({.ranks = ranks}, one)[0], one) < 1e-9);
}

TEST_CASE("f64: the stages share their bits on a transport that adds in its own order, at the cost of their plans") {
  const Trained one = train<DataF64<0>>({.steps = 6});
  for (int ranks : {1, 2, 3, 4}) {
    const Cell cell{.ranks = ranks, .steps = 6, .sum_order = SumOrder::transport};
    const Trained stage0 = every_stage(cell, one)[0], in_rank_order = train<DataF64<0>>({.ranks = ranks, .steps = 6});
    CHECK((stage0.parameters != in_rank_order.parameters) == (ranks > 2));  // two summands have one order
  }
  every_stage({.ranks = 3, .accumulate = 2, .steps = 6, .sum_order = SumOrder::transport}, one);
}

TEST_CASE("f64: with accumulation and dropout the curve is the same; stages 0 and 1 agree in all bits, so do 2 and 3") {
  const Trained one = train<DataF64<0>>({.dropout = 0.1});
  for (const Cell& cell :
       {Cell{.ranks = 1, .accumulate = 2, .dropout = 0.1}, Cell{.ranks = 2, .accumulate = 3, .dropout = 0.1},
        Cell{.ranks = 3, .accumulate = 2, .dropout = 0.1}, Cell{.ranks = 4, .accumulate = 3, .dropout = 0.1}})
    every_stage(cell, one);
}

TEST_CASE("f64: one bucket per unit, one parameter per bucket, and a batch of one token cost what their plans say") {
  const Trained one = train<DataF64<0>>({.steps = 5});
  every_stage({.ranks = 3, .steps = 5, .bucket_elements = 1 << 20}, one);
  every_stage({.ranks = 2, .steps = 5, .bucket_elements = 1}, one);
  const Cell tiny{.ranks = 2, .samples = 2, .sequence = 1};  // the peak is in the step, not in backward
  every_stage(tiny, train<DataF64<0>>({.samples = 2, .sequence = 1}));
}

TEST_CASE("f64: recomputing blocks changes no bit, moves the same over Data, and lowers the peak") {
  const Trained one = train<DataF64<0>>({.dropout = 0.1});
  for (const Cell& cell : {Cell{.ranks = 1, .dropout = 0.1}, Cell{.ranks = 2, .accumulate = 2, .dropout = 0.1}}) {
    const Trained kept0 = train<DataF64<0>>(cell), kept3 = train<DataF64<3>>(cell);
    const Trained again0 = check_cell<RecomputedGpt<Policy<F64>>>(cell, one, 1e-9);
    const Trained again3 = check_cell<RecomputedGpt<Policy<F64, Zero<3>>>>(cell, one, 1e-9);
    check_same_bits(again0, kept0);
    check_same_bits(again3, kept3);
    CHECK(again3.ranks[0].replicas == kept3.ranks[0].replicas);
    CHECK(again0.ranks[0].peak < kept0.ranks[0].peak);
    CHECK(again3.ranks[0].peak < kept3.ranks[0].peak);
  }
}
