// SPDX-License-Identifier: Apache-2.0
/// A GPT whose blocks' feed-forward parts are given: the same names whether they are tiled or not.
#pragma once

#include <dspp/models/gpt.hpp>
#include <dspp/models/tiled.hpp>

namespace dspp::laws {

/// GptBlock with other projections.
template <class P, class Up, class Down>
struct FeedBlock : Layer<P> {
  template <class Q>
  using on = FeedBlock<Q, rebind_layer<Up, Q>, rebind_layer<Down, Q>>;

  struct Feed : Layer<P> {
    Up up;
    Down down;
    constexpr explicit Feed(Size width) : up(width, 4 * width), down(4 * width, width) {}
    constexpr void visit(auto&& f) {
      f("up", up);
      f("down", down);
    }
    constexpr auto operator()(const Hidden<P>& x) const { return down(gelu(up(x))); }
  };

  LayerNorm<P> norm1, norm2;
  SelfAttention<P> attention;
  Feed mlp;
  Dropout<P> dropout;

  constexpr explicit FeedBlock(const GptConfig& c)
      : norm1(c.width),
        norm2(c.width),
        attention(AttentionConfig{.width = c.width, .heads = c.heads}),
        mlp(c.width),
        dropout(c.dropout) {}

  constexpr void visit(auto&& f) {
    f("norm1", norm1);
    f("attention", attention);
    f("norm2", norm2);
    f("mlp", mlp);
    f("dropout", dropout);
  }

  constexpr auto operator()(const Hidden<P>& x) const {
    const auto y = x + attention(norm1(x));
    return y + dropout(mlp(norm2(y)));
  }
};

template <class P>
using PlainFeed = FeedBlock<P, ColumnParallel<Linear, P>, RowParallel<Linear, P>>;

/// 96 / tp outputs in three tiles, 24 inputs in two; then 96 / tp inputs in five uneven ones, 24 outputs in two.
template <class P>
using TiledFeed = FeedBlock<P, Tiled<ColumnParallel<Linear, P>, 2, 3>, Tiled<RowParallel<Linear, P>, 5, 2>>;

template <class P>
using PlainGpt = Gpt<P, PlainFeed<P>>;
template <class P>
using TiledGpt = Gpt<P, TiledFeed<P>>;

}  // namespace dspp::laws
