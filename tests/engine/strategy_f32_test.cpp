// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: data parallelism in f32.
// labels: matrix optimised
#include <laws/stages.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage>
using DataF32 = Gpt<Policy<F32, Zero<Stage>>>;

void check(const Cell& cell, const Trained& one) {
  check_every_stage<DataF32>(cell, one, 1e-4, 1e-5);
}

}  // namespace

TEST_CASE("f32: every stage on 1 to 4 ranks follows the one-rank curve, in the same bits without accumulation") {
  const Trained one = train<DataF32<0>>({});
  for (int ranks : {1, 2, 3, 4}) check({.ranks = ranks}, one);
}

TEST_CASE("f32: with accumulation and dropout stages 0 = 1 and 2 = 3 in all bits, and the pairs agree to 1e-5") {
  const Trained one = train<DataF32<0>>({.dropout = 0.1});
  check({.ranks = 2, .accumulate = 3, .dropout = 0.1}, one);
  check({.ranks = 3, .accumulate = 2, .dropout = 0.1}, one);
  const Trained step = train<DataF32<0>>({.steps = 1});
  for (int ranks : {2, 4}) check({.ranks = ranks, .accumulate = 3, .steps = 1}, step);
}
