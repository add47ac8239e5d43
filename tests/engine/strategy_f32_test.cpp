// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: data parallelism in f32.
// labels: thread matrix
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

template Trained dspp::laws::train<Gpt<Policy<F32>>>(const Cell&);  // the one-rank curve of both f32 files

namespace {

template <int Stage>
using Data = Gpt<Policy<F32, Zero<Stage>>>;

std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  return {check_cell<Data<0>>(cell, one, 1e-4), check_cell<Data<1>>(cell, one, 1e-4),
          check_cell<Data<2>>(cell, one, 1e-4), check_cell<Data<3>>(cell, one, 1e-4)};
}

}  // namespace

TEST_CASE("f32: every stage on 1 to 4 ranks follows the one-rank curve, in the same bits without accumulation") {
  const Trained one = train<Data<0>>({});
  for (int ranks : {1, 2, 3, 4}) {
    const auto stages = every_stage({.ranks = ranks}, one);
    for (int stage = 1; stage < 4; ++stage) check_same_bits(stages[static_cast<std::size_t>(stage)], stages[0]);
  }
}

TEST_CASE("f32: with accumulation and dropout stages 0 = 1 and 2 = 3 in all bits, and the pairs agree to 1e-5") {
  const Trained one = train<Data<0>>({.dropout = 0.1});
  for (const Cell& cell :
       {Cell{.ranks = 2, .accumulate = 3, .dropout = 0.1}, Cell{.ranks = 3, .accumulate = 2, .dropout = 0.1}}) {
    const auto stages = every_stage(cell, one);
    check_same_bits(stages[1], stages[0]);
    check_same_bits(stages[3], stages[2]);
    CHECK(relative_gap(stages[2].losses, stages[0].losses) < 1e-5);
  }
}
