// SPDX-License-Identifier: Apache-2.0
/// GPT-2: learned positions, pre-normalised blocks, GELU, causal attention, tied embedding.
#pragma once

#include <dspp/autograd/operators.hpp>
#include <dspp/models/at_position.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/models/positions.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/parallel/tiled_loss.hpp>

namespace dspp {

struct GptConfig {
  int layers = 4;
  Size width = 256;
  Size heads = 4;
  Size vocabulary = 256;
  Size sequence = 1024;  ///< the longest; shorter inputs use the first positions
  Size ffn_width = 0;    ///< of the feed-forward sub-layer; 0: 4 width
  double dropout = 0;
  double epsilon = 1e-5;
  double init_std = 0.02;      ///< of weights; those that write to the residual stream get init_std / sqrt(2 layers)
  Size loss_chunk_tokens = 0;  ///< tokens whose logits exist at a time (TiledLoss); 0: all
  int recompute_segments = 1;  ///< of the blocks, see Stack; 1: none runs again

  constexpr Size effective_ffn_width() const { return ffn_width > 0 ? ffn_width : 4 * width; }
};

namespace detail {
/// 1 / sqrt(2 layers) by Newton's steps: std::sqrt is not constexpr.
constexpr double residual_scale(int layers) {
  const double x = 2.0 * layers;
  double root = x, before = 0;
  for (int i = 0; i < 40 && root != before; ++i, root = 0.5 * (before + x / before)) before = root;
  return 1 / root;
}
}  // namespace detail

/// x + attention(norm1(x)), then x + mlp(norm2(x)).       x [batch, sequence, width]
///
/// Feed is the feed-forward sub-layer, constructed from MlpConfig: `GptBlock<P, TiledMlp<Mlp<P>, 4>>`.
/// Source   Radford et al. 2019 (GPT-2); initial values as there
template <class P, class Feed = Mlp<P>>
struct GptBlock : Layer<P> {
  template <class Q>
  using on = GptBlock<Q, rebind<Feed, typename Q::DeviceType>>;

  LayerNorm<P> norm1, norm2;
  SelfAttention<P> attention;
  Feed mlp;
  Dropout<P> dropout1, dropout2;

  constexpr explicit GptBlock(const GptConfig& c)
      : norm1(c.width, c.epsilon),
        norm2(c.width, c.epsilon),
        attention(AttentionConfig{.width = c.width,
                                  .heads = c.heads,
                                  .initial = Initial::normal(c.init_std),
                                  .output_initial = Initial::normal(c.init_std * detail::residual_scale(c.layers))}),
        mlp(MlpConfig{.width = c.width,
                      .ffn_width = c.effective_ffn_width(),
                      .initial = Initial::normal(c.init_std),
                      .output_initial = Initial::normal(c.init_std * detail::residual_scale(c.layers))}),
        dropout1(c.dropout),
        dropout2(c.dropout) {}

  constexpr void visit(auto&& f) {
    f("norm1", norm1);
    f("attention", attention);
    f("dropout1", dropout1);
    f("norm2", norm2);
    f("mlp", mlp);
    f("dropout2", dropout2);
  }

  constexpr auto operator()(const Hidden<P>& x) const {
    auto [y, normed] = norm2.of_sum(x, dropout1(attention(norm1(x))));
    return y + dropout2(mlp(normed));
  }
};

/// Tokens to logits, and to the mean cross-entropy.
///
///   ids [batch, sequence] -> logits [batch, sequence, vocabulary / tp] per rank
///
/// Memory   12 layers width^2 + (vocabulary + sequence) width parameters, and biases
/// Source   Radford et al. 2019 (GPT-2)
template <class P, class Block = GptBlock<P>>
struct Gpt : Layer<P> {
  template <class Q>
  using on = Gpt<Q, rebind<Block, typename Q::DeviceType>>;

  GptConfig config;
  VocabParallel<Embedding, P> tokens;
  Positions<P> positions;
  Dropout<P> dropout;
  Stack<Block> blocks;
  LayerNorm<P> norm;

  constexpr explicit Gpt(const GptConfig& c)
      : config(c),
        tokens(EmbeddingConfig{.vocabulary = c.vocabulary, .width = c.width, .initial = Initial::normal(c.init_std)}),
        positions(c.sequence, c.width, Initial::normal(c.init_std)),
        dropout(c.dropout),
        blocks(c.layers, c),
        norm(c.width, c.epsilon) {
    require(c.layers >= 1, "dspp: Gpt needs at least one layer, but got none. Raise layers.");
    blocks.segments = c.recompute_segments;
  }

  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("positions", positions);
    f("dropout", dropout);
    f("blocks", blocks);
    f("norm", norm);
  }

  /// Logits of every token of the vocabulary at every position, split along the vocabulary over Tp.
  constexpr auto operator()(const Tokens<P>& ids) const { return tokens.logits(hidden(ids)); }

  /// The same of one position of this rank's part of the sequences, for inference: [batch, 1, vocabulary / tp].
  constexpr auto logits_at(const Tokens<P>& ids, Size position) const {
    return tokens.logits(at_position<P>(hidden(ids), position));
  }

  /// Mean cross-entropy over the batch.
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    if (config.loss_chunk_tokens > 0) return TiledLoss<P>(config.loss_chunk_tokens)(tokens, hidden(ids), targets);
    return cross_entropy<P>((*this)(ids), targets, config.vocabulary);
  }

 private:
  constexpr auto hidden(const Tokens<P>& ids) const { return norm(blocks(dropout(positions(tokens(ids))))); }
};

}  // namespace dspp
