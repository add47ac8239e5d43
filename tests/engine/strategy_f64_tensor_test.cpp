// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: tensor parallelism, alone and with data parallelism, in f64.
// labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage, int Degree>
using Split = Gpt<Policy<F64, Zero<Stage>, Tp<Degree>>>;
template <int Stage>
using TensorHalvesF64 = Split<Stage, 2>;

std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  return check_every_stage<TensorHalvesF64>(cell, one, 1e-9, 1e-9);
}

}  // namespace

TEST_CASE("f64: two tensor ranks under every stage, with and without data ranks, follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  for (int ranks : {2, 4}) CHECK(parameter_gap(every_stage({.ranks = ranks}, one)[0], one) < 1e-9);
}

TEST_CASE("f64: tensor ranks with accumulation and dropout follow the one-rank curve; 0 = 1 and 2 = 3 in all bits") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  every_stage({.ranks = 4, .accumulate = 3, .dropout = 0.1}, one);
}

TEST_CASE("f64: three and four tensor ranks follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  check_cell_of_gpt<Split<1, 3>>({.ranks = 3, .dropout = 0.1}, one, 1e-9);
  check_cell_of_gpt<Split<3, 4>>({.ranks = 4, .accumulate = 2, .dropout = 0.1}, one, 1e-9);
}
