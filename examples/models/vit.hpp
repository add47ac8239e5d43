// SPDX-License-Identifier: Apache-2.0
/// A vision transformer that classifies images, written as a user would; tests/golden/make_models_golden.py is the same
/// in PyTorch.
#pragma once

#include <dspp/dspp.hpp>

namespace dspp::vit {

struct Config {
  int layers = 2;
  Size width = 32, heads = 4, image = 16, patch = 4, channels = 3, classes = 4;
  constexpr Size patches() const { return (image / patch) * (image / patch); }
};

/// Images, which every rank of Cp has whole, and the class of each.
template <class P>
struct Images {
  Input<P, float, 4> images;         // [samples, channels, image, image]
  Input<P, std::int32_t, 1> labels;  // [samples]
  constexpr void visit(auto&& f) { f("images", images), f("labels", labels); }
};

template <class P>
struct Block : Layer<P> {
  LayerNorm<P> norm1, norm2;
  SelfAttention<P> attention;
  Mlp<P> mlp;

  constexpr explicit Block(const Config& c)
      : norm1(c.width),
        norm2(c.width),
        attention({.width = c.width, .heads = c.heads, .rule = {AttentionMask::full}}),
        mlp({.width = c.width, .ffn_width = 4 * c.width}) {}
  constexpr void visit(auto&& f) { f("norm1", norm1), f("attention", attention), f("norm2", norm2), f("mlp", mlp); }
  constexpr auto operator()(const Hidden<P>& x) const {
    auto y = x + attention(norm1(x));
    return y + mlp(norm2(y));
  }
};

/// Source   Dosovitskiy et al. 2020, arXiv:2010.11929, with the mean over the patches in place of a class token
template <class P>
struct Vit : Layer<P> {
  Config config;
  PatchEmbedding<P> embed;
  Positions<P> positions;
  Stack<Block<P>> blocks;
  LayerNorm<P> norm;
  ColumnParallel<Linear, P> head;

  constexpr explicit Vit(const Config& c)
      : config(c),
        embed({.channels = c.channels, .patch = c.patch, .width = c.width}),
        positions(c.patches(), c.width),
        blocks(c.layers, c),
        norm(c.width),
        head(c.width, c.classes) {}
  constexpr void visit(auto&& f) {
    f("embed", embed), f("positions", positions), f("blocks", blocks), f("norm", norm), f("head", head);
  }

  constexpr auto logits(const Images<P>& batch) const {
    const auto x = own_positions<P>(embed(cast<ElementOf<P>>(batch.images)));
    const auto y = norm(blocks(positions(redistribute<typename P::HiddenState>(x))));
    const auto all = redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(y));  // the patches of all ranks
    return head(mean<1>(all));
  }
  constexpr Loss<P> loss(const Images<P>& batch) const {
    return cross_entropy<P>(logits(batch), batch.labels, config.classes);
  }

  constexpr Images<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    Images<P> batch;
    batch.images = Tensor<float, 4, D>::uninitialized(
        shape(sizes.micro_batch, config.channels, config.image, config.image), memory, Category::data, "images");
    batch.labels =
        Tensor<std::int32_t, 1, D>::uninitialized(shape(sizes.micro_batch), memory, Category::data, "labels");
    return batch;
  }
};

}  // namespace dspp::vit
