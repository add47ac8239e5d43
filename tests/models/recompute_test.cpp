// SPDX-License-Identifier: Apache-2.0
// Collectives and nesting: mlp_test.cpp. labels: thread
#include <laws/parallel_layer.hpp>
#include <laws/strategy.hpp>
#include <laws/user_model.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {
const Global<3> x = global_normal(shape(2, 12, 24), 1), dy = global_normal(shape(2, 12, 24), 2);
constexpr GptConfig config{.layers = 2, .width = 24, .heads = 12, .dropout = 0.3};

/// One block, applied twice, so that its parameters are shared.
template <class P, class Block>
struct Twice : Layer<P> {
  Block block{config};
  constexpr void visit(auto&& f) { f("block", block); }
  constexpr auto operator()(const Hidden<P>& in) const { return block(block(in)); }
};

/// Attention to the first 7 and the first 12 tokens.
template <class P, class Attention>
struct OfLengths : Layer<P> {
  Attention attention{AttentionConfig{.width = 24, .heads = 4, .rule = {AttentionMask::full}}};
  constexpr void visit(auto&& f) { f("attention", attention); }
  constexpr auto operator()(const Hidden<P>& in) const {
    auto lengths = Tensor<std::int32_t, 1>::zeros(shape(2), in.tape().memory());
    lengths.data()[0] = 7, lengths.data()[1] = 12;
    return attention(in, Lengths{Input<P, std::int32_t, 1>::constant(lengths, in.tape())});
  }
};

/// The gradients of all parameters of a layer on one rank, followed by dx.
template <class L>
std::vector<std::vector<double>> gradients_of(L layer) {
  TestRank here;
  here.context.training = true;
  Home<double> home(layer, here);
  Hidden<Policy<F64>> in(part_of<Invariant, double>(x, 0, 1, here.pool), here.tape);
  const auto y = layer(in);
  here.tape.backward(y.slot(), part_of<Invariant, double>(dy, 0, 1, here.pool));
  std::vector<std::vector<double>> gradients;
  for (std::size_t i = 0; i < home.entries().size(); ++i) {
    const auto gradient = home.gradient(i);
    gradients.emplace_back(gradient.data(), gradient.data() + gradient.count());
  }
  const auto dx = here.tape.template take<double, 3>(in.slot(), in.shape());
  gradients.emplace_back(dx.data(), dx.data() + dx.count());
  return gradients;
}
}  // namespace

TEST_CASE("Recompute draws the same dropout masks again") {
  using P = Policy<F64>;
  const auto once = gradients_of(GptBlock<P>(config));
  CHECK(once.size() == 13);
  CHECK(gradients_of(Recompute<GptBlock<P>>(config)) == once);
}

TEST_CASE("a parameter of two recomputed blocks has the gradient of two blocks without recomputation, bit for bit") {
  using P = Policy<F64>;
  const auto once = gradients_of(Twice<P, GptBlock<P>>());
  CHECK(once.size() == 13);
  CHECK(gradients_of(Twice<P, Recompute<GptBlock<P>>>()) == once);
}

TEST_CASE("what follows the input of a recomputed layer is kept for its second run") {
  using P = Policy<F64>;
  const auto once = gradients_of(OfLengths<P, SelfAttention<P>>());
  CHECK(once.size() == 5);
  CHECK(gradients_of(OfLengths<P, Recompute<SelfAttention<P>>>()) == once);
}

namespace {
/// A GPT that applies one block twice.
template <class P, class Block>
struct OneBlockTwice : Layer<P> {
  template <class Q>
  using on = OneBlockTwice<Q, rebind<Block, typename Q::DeviceType>>;

  VocabParallel<Embedding, P> tokens;
  Block block;
  LayerNorm<P> norm;

  constexpr explicit OneBlockTwice(const GptConfig& c)
      : tokens(EmbeddingConfig{.vocabulary = c.vocabulary, .width = c.width, .initial = Initial::normal(0.5)}),
        block(c),
        norm(c.width) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("block", block);
    f("norm", norm);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(norm(block(block(tokens(ids))))), targets, tokens.vocabulary());
  }
};

template <class P>
Trained shared(bool recomputes) {
  const Cell cell{.ranks = 2, .steps = 4, .dropout = 0.1};
  return recomputes ? train<OneBlockTwice<P, Recompute<GptBlock<P>>>>(cell)
                    : train<OneBlockTwice<P, GptBlock<P>>>(cell);
}
}  // namespace

TEST_CASE("a model that shares a recomputed block trains to the bits of one that does not recompute") {
  check_same_bits(shared<Policy<F64>>(true), shared<Policy<F64>>(false));
}

TEST_CASE("the same under Zero<3>, up to the order in which the ranks' summands are added") {
  const Trained again = shared<Policy<F64, Zero<3>>>(true), once = shared<Policy<F64, Zero<3>>>(false);
  CHECK(relative_gap(again.losses, once.losses) < 1e-13);
  CHECK(parameter_gap(again, once) < 1e-12);
}
