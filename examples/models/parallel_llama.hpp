// SPDX-License-Identifier: Apache-2.0
/// A Llama with norms of queries and keys, attention and feed-forward side by side, and soft caps, written as a user
/// would; tests/golden/make_models_golden.py is the same in PyTorch.
#pragma once

#include <dspp/dspp.hpp>

namespace dspp::parallel_llama {

struct Config {
  int layers = 2;
  Size width = 64, heads = 4, kv_heads = 2, ffn_width = 128, vocabulary = 256;
  double rope_theta = 10000, score_cap = 50, logit_cap = 30, label_smoothing = 0;
};

template <class P>
struct Block : Layer<P> {
  RmsNorm<P> norm;
  GroupedAttention<P> attention;
  GatedMlp<P> mlp;

  constexpr explicit Block(const Config& c)
      : norm(c.width),
        attention({.width = c.width,
                   .heads = c.heads,
                   .kv_heads = c.kv_heads,
                   .rope_theta = c.rope_theta,
                   .rule = {.softcap = c.score_cap},
                   .qk_norm = true}),
        mlp({.width = c.width, .ffn_width = c.ffn_width}) {}
  constexpr void visit(auto&& f) { f("norm", norm), f("attention", attention), f("mlp", mlp); }
  constexpr auto operator()(const Hidden<P>& x) const {
    const auto y = norm(x);
    return x + attention(y) + mlp(y);
  }
};

/// Source   Chowdhery et al. 2022, arXiv:2204.02311 (parallel layers); Dehghani et al. 2023, arXiv:2302.05442 (norms of
///          queries and keys); Gemma Team 2024, arXiv:2408.00118 (soft caps)
template <class P>
struct ParallelLlama : Layer<P> {
  Config config;
  VocabParallel<Embedding, P> tokens;
  Stack<Block<P>> blocks;
  RmsNorm<P> norm;

  constexpr explicit ParallelLlama(const Config& c)
      : config(c), tokens(c.vocabulary, c.width), blocks(c.layers, c), norm(c.width) {}
  constexpr void visit(auto&& f) { f("tokens", tokens), f("blocks", blocks), f("norm", norm); }

  constexpr auto operator()(const Tokens<P>& ids) const {
    const auto logits = tokens.logits(norm(blocks(tokens(ids))));
    return config.logit_cap * tanh((1 / config.logit_cap) * logits);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>((*this)(ids), targets, config.vocabulary, {.label_smoothing = config.label_smoothing});
  }
};

}  // namespace dspp::parallel_llama
