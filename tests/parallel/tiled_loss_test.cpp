// SPDX-License-Identifier: Apache-2.0
// In whole models: tests/engine/strategy_chunks_test.cpp.
#include <doctest/doctest.h>

#include <dspp/autograd/operators.hpp>
#include <dspp/parallel/tiled_loss.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size vocabulary = 13, width = 8, batch = 2, sequence = 12, rows = batch * sequence;
const Global<3> x = global_normal(shape(batch, sequence, width), 1);
const Global<0> one = [] {
  Global<0> seed(Shape<0>{});
  seed.at[0] = 1;
  return seed;
}();

template <class P>
Tokens<P> tokens(Tape<Cpu>& tape, Size factor) {
  auto ids = Tensor<std::int32_t, 2>::uninitialized(shape(batch, sequence), tape.memory(), Category::data, "ids");
  for (Size i = 0; i < rows; ++i) ids.data()[i] = static_cast<std::int32_t>((i * i * factor + 3 * i) % vocabulary);
  return Tokens<P>::constant(std::move(ids), tape);
}

/// Look-up plus x, then the loss by the same table, all at once (0) or by chunks.
template <class P>
auto run_tied(Size chunk_tokens, double label_smoothing = 0) {
  return run_layer<P, typename P::HiddenState, Invariant>(
      [] { return VocabParallel<Embedding, P>(vocabulary, width); },
      [=](const auto& table, const auto& in) {
        const CrossEntropyOptions options{.label_smoothing = label_smoothing};
        const auto h = table(tokens<P>(in.tape(), 5)) + in;
        const auto targets = tokens<P>(in.tape(), 7);
        if (chunk_tokens > 0) return TiledLoss<P>(chunk_tokens)(table, h, targets, options);
        return cross_entropy<P>(table.logits(h), targets, vocabulary, options);
      },
      x, one);
}

template <class P>
void check_chunks() {
  const auto dense = run_tied<Policy<F64>>(0);
  const auto whole = run_tied<P>(0);
  for (const Size chunk_tokens : {1, 7, 12, 24, 100}) {
    CAPTURE(chunk_tokens);
    const auto chunks = run_tied<P>(chunk_tokens);
    check_same(chunks, dense, 1e-12);
    CHECK(chunks.forward == whole.forward);  // calls, too: the collectives of the whole
    CHECK(chunks.backward == whole.backward);
  }
  check_same(run_tied<P>(7, 0.1), run_tied<Policy<F64>>(0, 0.1), 1e-12);
}

}  // namespace

TEST_CASE("the loss by chunks has the value and the gradients of the whole, at 1 to 4 ranks, for the same traffic") {
  check_chunks<Whole<1>>();
  check_chunks<Whole<2>>();
  check_chunks<Whole<3>>();
  check_chunks<Whole<4>>();
  check_chunks<Split<2>>();
  check_chunks<Split<3>>();
}

TEST_CASE("the gradients of the loss by chunks are finite differences") {
  TestRank here;
  using P = Policy<F64>;
  VocabParallel<Embedding, P> table(vocabulary, width);
  Home<double> home(table, here);
  const auto loss = [&](const Hidden<P>& in) { return TiledLoss<P>(5)(table, in, tokens<P>(in.tape(), 7)); };
  check_variable_gradient<Hidden<P>>(here, loss, random<double>(shape(batch, sequence, width), here.pool, 8), &home);
}

namespace {
/// The peak of activation bytes above those live before.
template <class P>
Size activations(Size chunk_tokens) {
  TestRank here;
  VocabParallel<Embedding, P> table(400, width);
  Home<double> home(table, here);
  Hidden<P> in(random<double>(shape(batch, sequence, width), here.pool, 8), here.tape);
  const auto targets = tokens<P>(here.tape, 7);
  here.pool.reset_peak();
  const Size before = here.pool.live();
  const auto loss = chunk_tokens > 0 ? TiledLoss<P>(chunk_tokens)(table, in, targets)
                                     : cross_entropy<P>(table.logits(in), targets, 400);
  auto seed = Tensor<double, 0>::uninitialized({}, here.pool, Category::activations, "seed");
  seed.fill(1);
  here.tape.backward(loss.slot(), std::move(seed));
  return here.pool.peak() - before;
}
}  // namespace

TEST_CASE("only one chunk's logits exist at a time") {
  const Size whole = activations<Policy<F64>>(0), chunks = activations<Policy<F64>>(4);
  // dx is computed beside one number per row and the loss's own gradient, which the whole has given up by then
  CHECK(whole - chunks == (rows - 4) * 400 * 8 - rows * 8 - 64);
}

TEST_CASE("chunks of no rows, and targets outside the vocabulary, are errors") {
  using P = Policy<F64>;
  CHECK_THROWS_WITH_AS(TiledLoss<P>(0),
                       "dspp: TiledLoss needs chunks of at least one token, but got less. Raise chunk_tokens.", Error);
  TestRank here;
  VocabParallel<Embedding, P> table(5, width);
  Home<double> home(table, here);
  const Hidden<P> in(random<double>(shape(batch, sequence, width), here.pool, 8), here.tape);
  CHECK_THROWS_AS(TiledLoss<P>(4)(table, in, tokens<P>(here.tape, 7)), Error);
}
