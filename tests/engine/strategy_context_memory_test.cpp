// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: context parallelism with what lowers the peak: recomputed blocks, tiles, the loss by chunks.
// labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using ContextHalves = Policy<F64, Zero<3>, Cp<2>>;

template <class Model>
Trained check_context(const Cell& cell, const Trained& one, Size passes = 2) {
  Trained trained = check_cell_of_gpt<Model>(cell, one, 1e-9);
  check_context_traffic(trained, small_gpt().layers, 4 * small_gpt().width, passes);
  CHECK(parameter_gap(trained, one) < 1e-9);
  return trained;
}

}  // namespace

TEST_CASE("f64: recomputing blocks over context ranks exchanges once more, changes no bit and lowers the peak") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  for (const int ranks : {2, 4}) {
    const Cell cell{.ranks = ranks, .accumulate = 2, .dropout = 0.1};
    const Trained kept = check_context<Gpt<ContextHalves>>(cell, one);
    const Trained again = check_context<RecomputedGpt<ContextHalves>>(cell, one, 3);
    check_same_bits(again, kept);
    CHECK(again.ranks[0].peak < kept.ranks[0].peak);
  }
}

TEST_CASE("f64: the loss by chunks over context ranks, blocks kept or recomputed, follows the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  for (const int ranks : {2, 4}) {
    const Cell cell{.ranks = ranks, .loss_chunk_tokens = 7};
    const Trained kept = check_context<Gpt<ContextHalves>>(cell, one);
    check_same_bits(check_context<RecomputedGpt<ContextHalves>>(cell, one, 3), kept);
  }
}

TEST_CASE("f64: tiles over context ranks follow the untiled one-rank curve, the loss whole and by chunks") {
  const Trained one = train<PlainGpt<Policy<F64>>>({.dropout = 0.1});
  for (const int ranks : {2, 4})
    for (const Size loss_chunk_tokens : {0, 7})
      check_context<TiledGpt<ContextHalves>>(
          {.ranks = ranks, .accumulate = 2, .dropout = 0.1, .loss_chunk_tokens = loss_chunk_tokens}, one);
}
