// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: the loss and the feed-forward layers by chunks.
// labels: matrix
#include <dspp/models/tiled_mlp.hpp>
#include <laws/small_llama.hpp>
#include <laws/stages.hpp>

using namespace dspp;
using namespace dspp::laws;

extern template Trained dspp::laws::train<Gpt<Policy<F64>>>(const Cell&);

namespace {

/// A model of Base's whose loss has 7 tokens at a time.
template <class P, class Base>
struct InChunks : Base {
  template <class Q>
  using on = InChunks<Q, rebind<Base, typename Q::DeviceType>>;
  template <class Config>
  static constexpr Config by_chunks(Config c) {
    c.loss_rows = 7;
    return c;
  }
  constexpr explicit InChunks(const auto& c) : Base(by_chunks(c)) {}
};

template <class P>
using ChunkedLoss = InChunks<P, Gpt<P>>;
template <class P>
using ChunkedGpt = InChunks<P, Gpt<P, GptBlock<P, TiledMlp<Mlp<P>, 5>>>>;
template <class P>
using ChunkedLlama = InChunks<P, Llama<P, LlamaBlock<P, TiledMlp<GatedMlp<P>, 5>>>>;
template <class P>
using ChunkedTiedLlama = InChunks<P, Llama<P, LlamaBlock<P>, TiedHead<P>>>;

using Halves = Policy<F64, Zero<3>, Tp<2>>;
using SplitHalves = Policy<F64, Zero<2>, Tp<2>, SequenceParallel>;

}  // namespace

TEST_CASE("f64: the loss by chunks follows the one-rank curve and moves no more over Tp") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  check_cell_of_gpt<ChunkedLoss<Halves>>({.ranks = 2}, one, 1e-9);
  check_cell_of_gpt<ChunkedLoss<Halves>>({.ranks = 4, .accumulate = 3}, one, 1e-9);
}

TEST_CASE("f64: feed-forward layers by chunks follow the one-rank curve; their gradients are reduced once") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  const Trained whole = check_cell<ChunkedGpt<Policy<F64>>>({.ranks = 3, .dropout = 0.1}, one, 1e-9);
  const Trained sharded = check_cell<ChunkedGpt<Policy<F64, Zero<3>>>>({.ranks = 3, .dropout = 0.1}, one, 1e-9);
  check_same_bits(sharded, whole);
  check_cell<ChunkedGpt<Halves>>({.ranks = 4, .accumulate = 2, .dropout = 0.1}, one, 1e-9);
  check_cell<ChunkedGpt<SplitHalves>>({.ranks = 4, .dropout = 0.1}, one, 1e-9);
}

TEST_CASE("f64: a Llama by chunks follows its one-rank curve, with a head of its own and with a tied one") {
  check_cell<ChunkedLlama<Halves>>({.ranks = 4}, train<Llama<Policy<F64>>>({}), 1e-9);
  check_cell<ChunkedTiedLlama<SplitHalves>>({.ranks = 2}, train<TiedLlama<Policy<F64>>>({}), 1e-9);
}

TEST_CASE(
    "the peak of a step falls by the scores of the other rows, and by the inner activations of the other tokens") {
  constexpr PlanOptions options{.micro_batch = 2, .sequence = 64};
  constexpr GptConfig config{.layers = 2, .width = 16, .heads = 2, .vocabulary = 4096, .sequence = 64};
  using P = Policy<F64>;
  GptConfig by_chunks = config;
  by_chunks.loss_rows = 16;
  const Size whole = plan<Gpt<P>>(config, options).peak, chunks = plan<Gpt<P>>(by_chunks, options).peak;
  const Size rows = 2 * 64;
  CHECK(whole - chunks == (rows - 16) * 4096 * 8 - rows * 8 - 64);
}
