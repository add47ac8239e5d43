// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: tensor parallelism, alone and with data parallelism, in f64.
// labels: thread matrix
#include <laws/strategy.hpp>
#include <laws/tensor_traffic.hpp>

using namespace dspp;
using namespace dspp::laws;

extern template Trained dspp::laws::train<Gpt<Policy<F64>>>(const Cell&);

namespace {

template <int Stage, int Degree = 2>
using Tensor2 = Gpt<Policy<F64, Zero<Stage>, Tp<Degree>>>;

template <class Model>
Trained check(const Cell& cell, const Trained& one) {
  Trained trained = check_cell<Model>(cell, one, 1e-9);
  check_tensor_traffic(trained);
  return trained;
}

std::array<Trained, 4> every_stage(const Cell& cell, const Trained& one) {
  return {check<Tensor2<0>>(cell, one), check<Tensor2<1>>(cell, one), check<Tensor2<2>>(cell, one),
          check<Tensor2<3>>(cell, one)};
}

}  // namespace

TEST_CASE("f64: two tensor ranks under every stage, with and without data ranks, follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  for (int ranks : {2, 4}) {
    const auto stages = every_stage({.ranks = ranks}, one);
    for (int stage = 1; stage < 4; ++stage) check_same_bits(stages[static_cast<std::size_t>(stage)], stages[0]);
    CHECK(parameter_gap(stages[0], one) < 1e-9);
  }
}

TEST_CASE("f64: tensor ranks with accumulation and dropout follow the one-rank curve; 0 = 1 and 2 = 3 in all bits") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  const auto stages = every_stage({.ranks = 4, .accumulate = 3, .dropout = 0.1}, one);
  check_same_bits(stages[1], stages[0]);
  check_same_bits(stages[3], stages[2]);
  CHECK(parameter_gap(stages[2], stages[0]) < 1e-9);
}

TEST_CASE("f64: three and four tensor ranks follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  check<Tensor2<1, 3>>({.ranks = 3, .dropout = 0.1}, one);
  check<Tensor2<3, 4>>({.ranks = 4, .accumulate = 2, .dropout = 0.1}, one);
}
