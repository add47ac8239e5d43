// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: tensor and sequence parallelism in f32, alone and with data parallelism.
// labels: matrix
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Stage>
using SplitF32 = Gpt<Policy<F32, Zero<Stage>, Tp<2>>>;
template <int Stage>
using SplitSequenceF32 = Gpt<Policy<F32, Zero<Stage>, Tp<2>, SequenceParallel>>;

template <template <int> class Model>
void check(const Cell& cell, const Trained& one) {
  check_every_stage<Model>(cell, one, 1e-4, 1e-5);
}

}  // namespace

TEST_CASE("f32: two tensor ranks under every stage, with and without data ranks, follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F32>>>({});
  for (int ranks : {2, 4}) check<SplitF32>({.ranks = ranks}, one);
}

TEST_CASE("f32: sequence parallelism under every stage, with and without data ranks, follows the one-rank curve") {
  const Trained one = train<Gpt<Policy<F32>>>({});
  for (int ranks : {2, 4}) check<SplitSequenceF32>({.ranks = ranks}, one);
}

TEST_CASE("f32: with accumulation and dropout stages 0 = 1 and 2 = 3 in all bits, and the pairs agree to 1e-5") {
  const Trained one = train<Gpt<Policy<F32>>>({.dropout = 0.1});
  const Cell cell{.ranks = 4, .accumulate = 3, .dropout = 0.1};
  check<SplitF32>(cell, one);
  check<SplitSequenceF32>(cell, one);
}

TEST_CASE("f32: gathering a column's input again in backward changes no bit and lowers the peak") {
  const Trained one = train<Gpt<Policy<F32>>>({.dropout = 0.1});
  const Cell cell{.ranks = 4, .accumulate = 3, .dropout = 0.1};
  const Trained kept = train<SplitSequenceF32<3>>(cell);
  const Trained again =
      check_cell_of_gpt<Gpt<Policy<F32, Zero<3>, Tp<2>, SequenceParallel, RegatherInputs>>>(cell, one, 1e-4);
  check_same_bits(again, kept);
  CHECK(again.ranks[0].peak < kept.ranks[0].peak);
}

TEST_CASE("f32: two runs with one seed are the same in all bits, and another seed is another run") {
  Cell cell{.ranks = 4, .accumulate = 3, .dropout = 0.1};
  const Trained first = train<SplitSequenceF32<3>>(cell);
  check_same_bits(train<SplitSequenceF32<3>>(cell), first);
  cell.seed = 6;
  CHECK(differ(train<SplitSequenceF32<3>>(cell).losses, first.losses));
}
