// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: context parallelism, alone and with data and tensor parallelism, in f64 and bf16.
// labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage>
using ContextHalvesF64 = Gpt<Policy<F64, Zero<Stage>, Cp<2>>>;

/// A cell of a GPT, which exchanges q, k, v and the result: 4 width features of a token.
template <class Model>
Trained check_context(const Cell& cell, const Trained& one, double tolerance = 1e-9) {
  Trained trained = check_cell_of_gpt<Model>(cell, one, tolerance);
  check_context_traffic(trained, small_gpt().layers, 4 * small_gpt().width);
  return trained;
}

}  // namespace

TEST_CASE("f64: two context ranks under every stage, with and without data ranks, follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  for (int ranks : {2, 4}) {
    const auto stages = check_every_stage<ContextHalvesF64>({.ranks = ranks}, one, 1e-9, 1e-9);
    for (const Trained& stage : stages) check_context_traffic(stage, small_gpt().layers, 4 * small_gpt().width);
    CHECK(parameter_gap(stages[0], one) < 1e-9);
  }
}

TEST_CASE("f64: context ranks with accumulation and dropout follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  check_context<ContextHalvesF64<0>>({.ranks = 4, .accumulate = 3, .dropout = 0.1}, one);
  check_context<ContextHalvesF64<3>>({.ranks = 4, .accumulate = 3, .dropout = 0.1}, one);
}

TEST_CASE("f64: three context ranks follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  check_context<Gpt<Policy<F64, Zero<2>, Cp<3>>>>({.ranks = 3, .dropout = 0.1}, one);
}

TEST_CASE(
    "f64: four context ranks, alone and beside data ranks, follow the one-rank curve; stages 0 and 3 share bits") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  for (const int ranks : {4, 8})
    for (const Size accumulate : {1, 3}) {
      const Cell cell{.ranks = ranks, .accumulate = accumulate, .dropout = 0.1};
      const Trained whole = check_context<Gpt<Policy<F64, Cp<4>>>>(cell, one);
      const Trained sharded = check_context<Gpt<Policy<F64, Zero<3>, Cp<4>>>>(cell, one);
      if (accumulate == 1) check_same_bits(sharded, whole);
      CHECK(parameter_gap(sharded, whole) < 1e-9);
    }
}

TEST_CASE("f64: context and tensor ranks together, with and without sequence parallelism, follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  check_context<Gpt<Policy<F64, Cp<2>, Tp<2>>>>({.ranks = 4, .dropout = 0.1}, one);
  check_context<Gpt<Policy<F64, Zero<3>, Cp<2>, Tp<2>, SequenceParallel>>>(
      {.ranks = 4, .accumulate = 2, .dropout = 0.1}, one);
}

TEST_CASE("bf16: context ranks cost what their plan says, and stay near the f64 curve") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  check_context<Gpt<Policy<Bf16, Zero<2>, Cp<2>>>>({.ranks = 4}, one, 2e-2);
}
