// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: tensor and sequence parallelism in f32, alone and with data parallelism.
// labels: thread matrix
#include <laws/strategy.hpp>
#include <laws/tensor_traffic.hpp>

using namespace dspp;
using namespace dspp::laws;

extern template Trained dspp::laws::train<Gpt<Policy<F32>>>(const Cell&);

namespace {

template <int Stage>
using Split = Gpt<Policy<F32, Zero<Stage>, Tp<2>>>;
template <int Stage>
using SplitSequence = Gpt<Policy<F32, Zero<Stage>, Tp<2>, SequenceParallel>>;

template <class Model>
Trained check(const Cell& cell, const Trained& one) {
  Trained trained = check_cell<Model>(cell, one, 1e-4);
  check_tensor_traffic(trained);
  return trained;
}

template <template <int> class Model>
void check_every_stage(const Cell& cell, const Trained& one) {
  const Trained stages[] = {check<Model<0>>(cell, one), check<Model<1>>(cell, one), check<Model<2>>(cell, one),
                            check<Model<3>>(cell, one)};
  check_same_bits(stages[1], stages[0]);
  check_same_bits(stages[3], stages[2]);
  if (cell.accumulate == 1) check_same_bits(stages[2], stages[0]);
  CHECK(relative_gap(stages[2].losses, stages[0].losses) < 1e-5);
}

}  // namespace

TEST_CASE("f32: two tensor ranks under every stage, with and without data ranks, follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F32>>>({});
  for (int ranks : {2, 4}) check_every_stage<Split>({.ranks = ranks}, one);
}

TEST_CASE("f32: sequence parallelism under every stage, with and without data ranks, follows the one-rank curve") {
  const Trained one = train<Gpt<Policy<F32>>>({});
  for (int ranks : {2, 4}) check_every_stage<SplitSequence>({.ranks = ranks}, one);
}

TEST_CASE("f32: with accumulation and dropout stages 0 = 1 and 2 = 3 in all bits, and the pairs agree to 1e-5") {
  const Trained one = train<Gpt<Policy<F32>>>({.dropout = 0.1});
  const Cell cell{.ranks = 4, .accumulate = 3, .dropout = 0.1};
  check_every_stage<Split>(cell, one);
  check_every_stage<SplitSequence>(cell, one);
}

TEST_CASE("f32: gathering a column's input again in backward changes no bit and lowers the peak") {
  const Trained one = train<Gpt<Policy<F32>>>({.dropout = 0.1});
  const Cell cell{.ranks = 4, .accumulate = 3, .dropout = 0.1};
  const Trained kept = train<SplitSequence<3>>(cell);
  const Trained again = check<Gpt<Policy<F32, Zero<3>, Tp<2>, SequenceParallel, RegatherInputs>>>(cell, one);
  check_same_bits(again, kept);
  CHECK(again.ranks[0].peak < kept.ranks[0].peak);
}

TEST_CASE("f32: two runs with one seed are the same in all bits, and another seed is another run") {
  Cell cell{.ranks = 4, .accumulate = 3, .dropout = 0.1};
  const Trained first = train<SplitSequence<3>>(cell);
  check_same_bits(train<SplitSequence<3>>(cell), first);
  cell.seed = 6;
  CHECK(train<SplitSequence<3>>(cell).losses != first.losses);
}
