// SPDX-License-Identifier: Apache-2.0
/// Llama: RMS norms, rotary positions, grouped heads, SwiGLU, no biases, an untied or tied output head.
#pragma once

#include <dspp/autograd/operators.hpp>
#include <dspp/models/at_position.hpp>
#include <dspp/models/gated_mlp.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/parallel/tiled_loss.hpp>

namespace dspp {

struct LlamaConfig {
  int layers = 4;
  Size width = 256;
  Size heads = 4;
  Size kv_heads = 0;   ///< 0: as many as heads
  Size head_dim = 0;   ///< 0: width / heads
  Size ffn_width = 0;  ///< of the feed-forward sub-layer; 0: 8/3 width, rounded up to a multiple of 64
  Size vocabulary = 256;
  double rope_theta = 10000;  ///< of the rotary positions
  RopeScaling rope_scaling{};
  bool qkv_bias = false;  ///< biases of queries, keys and values, as in Qwen2
  bool qk_norm = false;   ///< an RmsNorm of every head of queries and of keys, as in Qwen3
  Size window = 0;        ///< the last positions that a position sees, itself among them; 0: all
  Size full_layers = 0;   ///< the first layers, which have no window
  double epsilon = 1e-6;
  double init_std = 0.02;  ///< of initial weights
  /// The longest training sequence, written to config.json as max_position_embeddings. Longer sequences are accepted:
  /// rotary positions have no limit.
  Size sequence = 2048;
  Size loss_chunk_tokens = 0;  ///< tokens whose logits exist at a time (TiledLoss); 0: all
  int recompute_segments = 1;  ///< of the blocks, see Stack; 1: none runs again

  constexpr Size effective_ffn_width() const { return ffn_width > 0 ? ffn_width : (8 * width / 3 + 63) / 64 * 64; }
};

/// x + attention(norm1(x)), then x + mlp(norm2(x)).       x [batch, sequence, width]
///
/// Feed is the feed-forward sub-layer, constructed from GatedMlpConfig.
/// Source   Touvron et al. 2023, arXiv:2302.13971
template <class P, class Feed = GatedMlp<P>>
struct LlamaBlock : Layer<P> {
  template <class Q>
  using on = LlamaBlock<Q, rebind<Feed, typename Q::DeviceType>>;

  RmsNorm<P> norm1, norm2;
  GroupedAttention<P> attention;
  Feed mlp;

  constexpr explicit LlamaBlock(const LlamaConfig& c)
      : norm1(c.width, c.epsilon),
        norm2(c.width, c.epsilon),
        attention(GroupedAttentionConfig{.width = c.width,
                                         .heads = c.heads,
                                         .kv_heads = c.kv_heads,
                                         .head_dim = c.head_dim,
                                         .rope_theta = c.rope_theta,
                                         .rope_scaling = c.rope_scaling,
                                         .rule = {.window = c.window},
                                         .qkv_bias = c.qkv_bias,
                                         .qk_norm = c.qk_norm,
                                         .epsilon = c.epsilon,
                                         .initial = Initial::normal(c.init_std),
                                         .output_initial = Initial::normal(c.init_std)}),
        mlp(GatedMlpConfig{.width = c.width,
                           .ffn_width = c.effective_ffn_width(),
                           .initial = Initial::normal(c.init_std),
                           .output_initial = Initial::normal(c.init_std)}) {}

  constexpr void visit(auto&& f) {
    f("norm1", norm1);
    f("attention", attention);
    f("norm2", norm2);
    f("mlp", mlp);
  }

  constexpr auto operator()(const Hidden<P>& x) const {
    auto [y, normed] = norm2.of_sum(x, attention(norm1(x)));
    return y + mlp(normed);
  }
};

/// An untied output head: a weight [vocabulary, width], cut as the embedding's.
template <class P>
struct UntiedHead : Layer<P> {
  VocabParallel<Embedding, P> table;

  constexpr explicit UntiedHead(const EmbeddingConfig& c) : table(c) {}
  constexpr void visit(auto&& f) { table.visit(f); }
  template <Tracked X>
  constexpr auto operator()(const VocabParallel<Embedding, P>&, const X& x) const {
    return table.logits(x);
  }
  /// The weight that computes the logits.
  constexpr const auto& table_of(const VocabParallel<Embedding, P>&) const { return table; }
};

/// A tied output head: it uses the embedding's weight.
template <class P>
struct TiedHead : Layer<P> {
  constexpr explicit TiedHead(const EmbeddingConfig&) {}
  constexpr void visit(auto&&) {}
  template <Tracked X>
  constexpr auto operator()(const VocabParallel<Embedding, P>& tokens, const X& x) const {
    return tokens.logits(x);
  }
  constexpr const auto& table_of(const VocabParallel<Embedding, P>& tokens) const { return tokens; }
};

/// Tokens to logits, and to the mean cross-entropy. `Llama<P, LlamaBlock<P>, TiedHead<P>>` has tied embeddings.
///
///   ids [batch, sequence] -> logits [batch, sequence, vocabulary / tp] per rank
///
/// Memory   layers (2 heads + 2 kv_heads) head_dim width + 3 layers ffn_width width + 2 vocabulary width parameters,
///          and norms
/// Source   Touvron et al. 2023, arXiv:2302.13971 and arXiv:2307.09288
template <class P, class Block = LlamaBlock<P>, class Head = UntiedHead<P>>
struct Llama : Layer<P> {
  template <class Q>
  using on = Llama<Q, rebind<Block, typename Q::DeviceType>, rebind<Head, typename Q::DeviceType>>;

  LlamaConfig config;
  VocabParallel<Embedding, P> tokens;
  Stack<Block> blocks;
  RmsNorm<P> norm;
  Head head;

  constexpr explicit Llama(const LlamaConfig& c)
      : config(c),
        tokens(table_of(c)),
        blocks(c.layers, [&](int layer) { return layer_of(c, layer); }),
        norm(c.width, c.epsilon),
        head(table_of(c)) {
    require(c.layers >= 1, "dspp: Llama needs at least one layer, but got none. Raise layers.");
    blocks.segments = c.recompute_segments;
  }

  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("blocks", blocks);
    f("norm", norm);
    f("head", head);
  }

  /// Logits of every token of the vocabulary at every position, split along the vocabulary over Tp.
  constexpr auto operator()(const Tokens<P>& ids) const { return head(tokens, hidden(ids)); }

  /// The same of one position of this rank's part of the sequences, for inference: [batch, 1, vocabulary / tp].
  constexpr auto logits_at(const Tokens<P>& ids, Size position) const {
    return head(tokens, at_position<P>(hidden(ids), position));
  }

  /// Mean cross-entropy over the batch.
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    if (config.loss_chunk_tokens > 0)
      return TiledLoss<P>(config.loss_chunk_tokens)(head.table_of(tokens), hidden(ids), targets);
    return cross_entropy<P>((*this)(ids), targets, config.vocabulary);
  }

 private:
  /// The configuration of one layer's block.
  static constexpr LlamaConfig layer_of(LlamaConfig c, int layer) {
    if (layer < c.full_layers) c.window = 0;
    return c;
  }
  constexpr auto hidden(const Tokens<P>& ids) const { return norm(blocks(tokens(ids))); }
  static constexpr EmbeddingConfig table_of(const LlamaConfig& c) {
    return {.vocabulary = c.vocabulary, .width = c.width, .initial = Initial::normal(c.init_std)};
  }
};

}  // namespace dspp
