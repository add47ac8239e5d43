// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: the loss and the feed-forward layers by chunks.
// labels: matrix
#include <type_traits>

#include <dspp/models/tiled_mlp.hpp>
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class P>
using ChunkedGpt = Gpt<P, GptBlock<P, TiledMlp<Mlp<P>, 5>>>;
template <class P>
using ChunkedLlama = Llama<P, LlamaBlock<P, TiledMlp<GatedMlp<P>, 5>>>;

using Halves = Policy<F64, Zero<3>, Tp<2>>;
using SplitHalves = Policy<F64, Zero<2>, Tp<2>, SequenceParallel>;

}  // namespace

TEST_CASE("f64: the loss by chunks follows the one-rank curve and moves no more over Tp") {
  const Trained one = train<Gpt<Policy<F64>>>({});
  check_cell_of_gpt<Gpt<Halves>>({.ranks = 2, .loss_chunk_tokens = 7}, one, 1e-9);
  check_cell_of_gpt<Gpt<Halves>>({.ranks = 4, .accumulate = 3, .loss_chunk_tokens = 7}, one, 1e-9);
}

TEST_CASE("f64: feed-forward layers by chunks follow the one-rank curve; their gradients are reduced once") {
  const Trained one = train<Gpt<Policy<F64>>>({.dropout = 0.1});
  for (const int ranks : {1, 3}) {
    const Cell cell{.ranks = ranks, .dropout = 0.1, .loss_chunk_tokens = 7};
    const Trained whole = check_cell<ChunkedGpt<Policy<F64>>>(cell, one, 1e-9);
    const Trained sharded = check_cell<ChunkedGpt<Policy<F64, Zero<3>>>>(cell, one, 1e-9);
    check_same_bits(sharded, whole);
  }
}

TEST_CASE("f64: a Llama by chunks, its sequences split, follows its one-rank curve") {
  const Trained one = train<Llama<Policy<F64>>>({});
  for (const int ranks : {2, 4})
    check_cell<ChunkedLlama<SplitHalves>>({.ranks = ranks, .accumulate = 2, .loss_chunk_tokens = 7}, one, 1e-9);
}

TEST_CASE("the peak of a step falls by the logits of the other rows, whichever table they come from") {
  using P = Policy<F64>;
  constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 64};
  constexpr Size rows = 2 * 64, vocabulary = 4096;
  const auto check = [&]<class Model, class Config>(std::type_identity<Model>, Config config) {
    const Size whole = plan<Model>(config, sizes).peak;
    config.loss_chunk_tokens = 16;
    // dx is computed beside one number per row, the loss's gradient and its count, which the unchunked loss has freed
    CHECK(whole - plan<Model>(config, sizes).peak == (rows - 16) * vocabulary * 8 - rows * 8 - 64 - 64);
  };
  const LlamaConfig llama{.layers = 2, .width = 16, .heads = 2, .vocabulary = vocabulary};
  check(std::type_identity<Gpt<P>>(),
        GptConfig{.layers = 2, .width = 16, .heads = 2, .vocabulary = vocabulary, .sequence = 64});
  check(std::type_identity<Llama<P>>(), llama);
  check(std::type_identity<TiedLlama<P>>(), llama);
}
