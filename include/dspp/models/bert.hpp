// SPDX-License-Identifier: Apache-2.0
/// BERT: full attention, normalised behind the residual sums, and a head that predicts masked tokens.
#pragma once

#include <dspp/autograd/operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/models/positions.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/nn/embedding.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/parallel/vocab_bias.hpp>

namespace dspp {

struct BertConfig {
  int layers = 4;
  Size width = 256;
  Size heads = 4;
  Size ffn_width = 0;  ///< of the feed-forward sub-layer; 0: 4 width
  Size vocabulary = 256;
  Size sequence = 512;  ///< the longest; shorter inputs use the first positions
  Size token_types = 2;
  double epsilon = 1e-12;
  double init_std = 0.02;
  int recompute_segments = 1;  ///< of the blocks, see Stack; 1: none runs again

  constexpr Size effective_ffn_width() const { return ffn_width > 0 ? ffn_width : 4 * width; }
};

/// Sequences padded to one length, of which Cp cuts them.
template <class P>
struct BertBatch {
  Tokens<P> tokens, token_types;      ///< [samples, sequence]
  Input<P, std::int32_t, 1> lengths;  ///< [samples]: the tokens before the padding
  Tokens<P> labels;                   ///< [samples, sequence]: the token that was masked, or ignored_target
  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("token_types", token_types), f("lengths", lengths), f("labels", labels);
  }
};

/// y = norm1(x + attention(x)), then norm2(y + mlp(y)).       x [batch, sequence, width]
template <class P>
struct BertBlock : Layer<P> {
  SelfAttention<P> attention;
  Mlp<P> mlp;
  LayerNorm<P> norm1, norm2;

  constexpr explicit BertBlock(const BertConfig& c)
      : attention({.width = c.width,
                   .heads = c.heads,
                   .rule = {.mask = AttentionMask::full},
                   .initial = Initial::normal(c.init_std),
                   .output_initial = Initial::normal(c.init_std)}),
        mlp({.width = c.width,
             .ffn_width = c.effective_ffn_width(),
             .gelu = GeluForm::exact,
             .initial = Initial::normal(c.init_std),
             .output_initial = Initial::normal(c.init_std)}),
        norm1(c.width, c.epsilon),
        norm2(c.width, c.epsilon) {}

  constexpr void visit(auto&& f) {
    f("attention", attention);
    f("norm1", norm1);
    f("mlp", mlp);
    f("norm2", norm2);
  }

  constexpr auto operator()(const Hidden<P>& x, const auto& lengths) const {
    auto y = norm1.of_sum(x, attention(x, lengths)).norm;
    return norm2.of_sum(y, mlp(y)).norm;
  }
};

/// A batch to logits of every token, and to the mean cross-entropy of the labels. The embedding computes the logits.
///
/// Memory   12 layers width^2 + (vocabulary + sequence + width) width parameters, biases and norms
/// Source   Devlin et al. 2018, arXiv:1810.04805, without the next sentence and dropout
template <class P>
struct Bert : Layer<P> {
  BertConfig config;
  VocabParallel<Embedding, P> tokens;
  Positions<P> positions;
  Embedding<P> token_types;
  LayerNorm<P> norm, head_norm;
  Stack<BertBlock<P>> blocks;
  Linear<P> head;
  VocabBias<P> decoder;  ///< of the logits

  constexpr explicit Bert(const BertConfig& c)
      : config(c),
        tokens(table(c, c.vocabulary)),
        positions(c.sequence, c.width, Initial::normal(c.init_std)),
        token_types(table(c, c.token_types)),
        norm(c.width, c.epsilon),
        head_norm(c.width, c.epsilon),
        blocks(c.layers, c),
        head(LinearConfig{.in = c.width, .out = c.width, .initial = Initial::normal(c.init_std)}),
        decoder(c.vocabulary) {
    require(c.layers >= 1, "dspp: Bert needs at least one layer, but got none. Raise layers.");
    blocks.segments = c.recompute_segments;
  }

  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("positions", positions);
    f("token_types", token_types);
    f("norm", norm);
    f("blocks", blocks);
    f("head", head);
    f("head_norm", head_norm);
    f("decoder", decoder);
  }

  /// Of every token of the vocabulary at every position, split along the vocabulary over Tp.
  constexpr auto logits(const BertBatch<P>& batch) const {
    const auto types = redistribute<typename P::HiddenState>(token_types(batch.token_types));
    const auto x = norm(positions(tokens(batch.tokens) + types));
    const auto y = blocks(x, Lengths{batch.lengths});
    return decoder(tokens.logits(head_norm(gelu(head(y), GeluForm::exact))));
  }

  constexpr Loss<P> loss(const BertBatch<P>& batch) const {
    return cross_entropy<P>(logits(batch), batch.labels, config.vocabulary);
  }

  constexpr BertBatch<P> new_batch(const auto& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    const auto ids = [&](const char* name) {
      return Tensor<std::int32_t, 2, D>::uninitialized(shape(sizes.micro_batch, sizes.sequence / P::cp), memory,
                                                       Category::data, name);
    };
    BertBatch<P> batch;
    batch.tokens = ids("tokens"), batch.token_types = ids("token_types"), batch.labels = ids("labels");
    batch.lengths =
        Tensor<std::int32_t, 1, D>::uninitialized(shape(sizes.micro_batch), memory, Category::data, "lengths");
    return batch;
  }

 private:
  static constexpr EmbeddingConfig table(const BertConfig& c, Size rows) {
    return {.vocabulary = rows, .width = c.width, .initial = Initial::normal(c.init_std)};
  }
};

}  // namespace dspp
