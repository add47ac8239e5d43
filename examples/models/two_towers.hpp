// SPDX-License-Identifier: Apache-2.0
/// Two towers, of images and of texts, that meet in one space over the global batch, written as a user would;
/// tests/golden/make_models_golden.py is the same in PyTorch.
#pragma once

#include <utility>

#include <dspp/dspp.hpp>

namespace dspp::two_towers {

struct Config {
  Size width = 32, features = 16, image = 8, patch = 4, channels = 3, vocabulary = 21, tokens = 4;
  double temperature = 0.07;  // at the start
  constexpr Size patches() const { return (image / patch) * (image / patch); }
};

/// Images and their texts. match[i] is the number of sample i among those of all data ranks.
template <class P>
struct Pairs {
  Input<P, float, 4> images;        // [samples, channels, image, image]
  Tokens<P> tokens;                 // [samples, tokens], of which Cp cuts the sequence
  Input<P, std::int32_t, 1> match;  // [samples]
  constexpr void visit(auto&& f) { f("images", images), f("tokens", tokens), f("match", match); }
};

/// A sequence of vectors as one of length 1.
template <class P>
struct Tower : Layer<P> {
  Positions<P> positions;
  LayerNorm<P> norm;
  Mlp<P> mlp;
  Linear<P> head;

  constexpr Tower(Size sequence, const Config& c)
      : positions(sequence, c.width),
        norm(c.width),
        mlp({.width = c.width, .ffn_width = 4 * c.width}),
        head({.in = c.width, .out = c.features, .bias = false}) {}
  constexpr void visit(auto&& f) { f("positions", positions), f("norm", norm), f("mlp", mlp), f("head", head); }

  constexpr auto operator()(const Hidden<P>& x) const {
    const auto y = norm(positions(x));
    const auto all = redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(y + mlp(y)));  // the whole sequence
    const auto z = head(mean<1>(all));
    return z / sqrt(sum<-1>(square(z), keep_dimension));
  }
};

/// Each image is nearest to its text among those of the whole batch, and the other way round.
///
/// Source   Radford et al. 2021, arXiv:2103.00020, figure 3
template <class P>
struct TwoTowers : Layer<P> {
  Config config;
  PatchEmbedding<P> patches;
  VocabParallel<Embedding, P> words;
  Tower<P> image, text;
  ParameterOf<P, 1> scale;

  constexpr explicit TwoTowers(const Config& c)
      : config(c),
        patches({.channels = c.channels, .patch = c.patch, .width = c.width}),
        words(c.vocabulary, c.width),
        image(c.patches(), c),
        text(c.tokens, c),
        scale("TwoTowers scale", shape(Size{1}), Initial::zeros()) {
    scale.decays = false;
  }
  constexpr void visit(auto&& f) {
    f("patches", patches), f("words", words), f("image", image), f("text", text), f("scale", scale);
  }

  /// Of this rank's images with the texts of all data ranks, and of its texts with the images.
  constexpr auto logits(const Pairs<P>& batch) const {
    const auto x = own_positions<P>(patches(cast<ElementOf<P>>(batch.images)));
    const auto a = image(redistribute<typename P::HiddenState>(x)), b = text(words(batch.tokens));
    const auto times = (1 / config.temperature) * exp(value_beside(a, scale));
    return std::pair(times * beside_all(a, b), times * beside_all(b, a));
  }
  constexpr Loss<P> loss(const Pairs<P>& batch) const {
    const auto [images, texts] = logits(batch);
    return 0.5 * (cross_entropy<P>(images, batch.match, images[1]) + cross_entropy<P>(texts, batch.match, texts[1]));
  }

  constexpr Pairs<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    const Size samples = sizes.micro_batch;
    const auto ids = [&]<int Rank>(const Shape<Rank>& extents, const char* name) {
      return Tensor<std::int32_t, Rank, D>::uninitialized(extents, memory, Category::data, name);
    };
    Pairs<P> batch;
    batch.images = Tensor<float, 4, D>::uninitialized(shape(samples, config.channels, config.image, config.image),
                                                      memory, Category::data, "images");
    batch.tokens = ids(shape(samples, config.tokens / P::cp), "tokens");
    batch.match = ids(shape(samples), "match");
    return batch;
  }

 private:
  constexpr auto beside_all(const auto& own, const auto& others) const {
    return matmul(own, transpose<1, 0>(redistribute<Replicate, Axis::Data>(others)));
  }
};

}  // namespace dspp::two_towers
