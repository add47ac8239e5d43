// SPDX-License-Identifier: Apache-2.0
/// A BERT that predicts masked tokens, written as a user would; tests/golden/make_models_golden.py is the same in
/// PyTorch.
#pragma once

#include <dspp/dspp.hpp>

namespace dspp::bert {

struct Config {
  int layers = 2;
  Size width = 64, heads = 4, vocabulary = 257, positions = 128, token_types = 2;
  double epsilon = 1e-12;
};

/// Sequences of `lengths` tokens, padded to one length, of which Cp cuts them.
template <class P>
struct Sentences {
  Tokens<P> tokens, token_types;      // [samples, sequence]
  Input<P, std::int32_t, 1> lengths;  // [samples]
  Tokens<P> labels;                   // [samples, sequence]: the token that was masked, or ignored_target
  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("token_types", token_types), f("lengths", lengths), f("labels", labels);
  }
};

template <class P>
struct Block : Layer<P> {
  SelfAttention<P> attention;
  Mlp<P> mlp;
  LayerNorm<P> norm1, norm2;

  constexpr explicit Block(const Config& c)
      : attention({.width = c.width, .heads = c.heads, .rule = {.mask = AttentionMask::full}}),
        mlp({.width = c.width, .ffn_width = 4 * c.width, .gelu = GeluForm::exact}),
        norm1(c.width, c.epsilon),
        norm2(c.width, c.epsilon) {}
  constexpr void visit(auto&& f) { f("attention", attention), f("norm1", norm1), f("mlp", mlp), f("norm2", norm2); }
  constexpr auto operator()(const Hidden<P>& x, const auto& lengths) const {
    auto y = norm1(x + attention(x, lengths));
    return norm2(y + mlp(y));
  }
};

/// Source   Devlin et al. 2018, arXiv:1810.04805, without the next sentence and dropout
template <class P>
struct Bert : Layer<P> {
  Config config;
  VocabParallel<Embedding, P> tokens;
  Positions<P> positions;
  Embedding<P> token_types;
  LayerNorm<P> norm, head_norm;
  Stack<Block<P>> blocks;
  Linear<P> head;
  VocabBias<P> decoder;  // of logits by the token embedding

  constexpr explicit Bert(const Config& c)
      : config(c),
        tokens(c.vocabulary, c.width),
        positions(c.positions, c.width),
        token_types(EmbeddingConfig{c.token_types, c.width}),
        norm(c.width, c.epsilon),
        head_norm(c.width, c.epsilon),
        blocks(c.layers, c),
        head(c.width, c.width),
        decoder(c.vocabulary) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("positions", positions), f("token_types", token_types), f("norm", norm);
    f("blocks", blocks), f("head", head), f("head_norm", head_norm), f("decoder", decoder);
  }

  constexpr auto logits(const Sentences<P>& batch) const {
    const auto types = redistribute<typename P::HiddenState>(token_types(batch.token_types));
    const auto x = norm(positions(tokens(batch.tokens) + types));
    const auto y = blocks(x, Lengths{batch.lengths});
    return decoder(tokens.logits(head_norm(gelu(head(y), GeluForm::exact))));
  }
  constexpr Loss<P> loss(const Sentences<P>& batch) const {
    return cross_entropy<P>(logits(batch), batch.labels, config.vocabulary);
  }

  constexpr Sentences<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    const auto ids = [&](const char* name) {
      return Tensor<std::int32_t, 2, D>::uninitialized(shape(sizes.micro_batch, sizes.sequence / P::cp), memory,
                                                       Category::data, name);
    };
    Sentences<P> batch;
    batch.tokens = ids("tokens"), batch.token_types = ids("token_types"), batch.labels = ids("labels");
    batch.lengths =
        Tensor<std::int32_t, 1, D>::uninitialized(shape(sizes.micro_batch), memory, Category::data, "lengths");
    return batch;
  }
};

}  // namespace dspp::bert
