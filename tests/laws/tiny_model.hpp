// SPDX-License-Identifier: Apache-2.0
/// The smallest model with all that a checkpoint must hold: cut and whole parameters, a padded vocabulary, an inner
/// unit, dropout. Up and Down may be tiled, with the same names.
#pragma once

#include <dspp/autograd/operators.hpp>
#include <dspp/nn/activation.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/embedding.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/zero/in_unit.hpp>

namespace dspp::laws {

struct TinyConfig {
  Size vocabulary = 13, width = 8, ffn_width = 12;
};

template <class P, class Up = ColumnParallel<Linear, P>, class Down = RowParallel<Linear, P>>
struct TinyModel : Layer<P> {
  struct Inside : Layer<P> {
    LayerNorm<P> norm;
    Up up;
    Down down;
    Dropout<P> dropout{0.25};
    constexpr explicit Inside(const TinyConfig& c)
        : norm(c.width),
          up(LinearConfig{.in = c.width, .out = c.ffn_width, .initial = Initial::normal(0.3)}),
          down(LinearConfig{.in = c.ffn_width, .out = c.width, .initial = Initial::normal(0.3)}) {}
    constexpr void visit(auto&& f) {
      f("norm", norm);
      f("up", up);
      f("down", down);
      f("dropout", dropout);
    }
    constexpr auto operator()(const Hidden<P>& x) const { return x + dropout(down(gelu(up(norm(x))))); }
  };

  VocabParallel<Embedding, P> tokens;
  InUnit<Inside> inside;

  constexpr explicit TinyModel(const TinyConfig& c)
      : tokens(EmbeddingConfig{.vocabulary = c.vocabulary, .width = c.width, .initial = Initial::normal(0.5)}),
        inside(Inside(c)) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("inside", inside);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(inside(tokens(ids))), targets, tokens.vocabulary());
  }
};

}  // namespace dspp::laws
