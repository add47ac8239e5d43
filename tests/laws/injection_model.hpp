// SPDX-License-Identifier: Apache-2.0
/// A small model of four layers, one of which gives values chosen by the test on one rank.
#pragma once

#include <array>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/nn/embedding.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/parallel/vocab.hpp>

namespace dspp::laws {

inline constexpr int injection_layers = 4;

/// Of this rank. 0: none.
struct Injection {
  std::array<double, injection_layers> output{};  ///< takes the place of an element of the layer's output
  double loss = 0;                                ///< takes the place of the loss, whose gradient stays
};

struct InjectionConfig {
  Size vocabulary = 61, width = 24;
  const Injection* injected = nullptr;
  bool frozen = false;  ///< no gradient goes on from the loss
};

/// The identity except for what is injected; uses its parameter.
template <class P>
struct Inject : Layer<P> {
  template <class Q>
  using on = Inject<Q>;

  ParameterOf<P, 1> weight;
  const Injection* injected;
  int number;

  constexpr explicit Inject(const InjectionConfig& c, int layer)
      : weight("Inject weight", shape(c.width), Initial::ones()), injected(c.injected), number(layer) {}
  constexpr void visit(auto&& f) { f("weight", weight); }

  Hidden<P> operator()(const Hidden<P>& x) const {
    using T = ElementOf<P>;
    auto value = Tensor<T, 3, Cpu>::uninitialized(x.shape(), x.memory());
    std::copy_n(x.value().data(), x.value().count(), value.data());
    (void)weight.value();
    const double output = injected->output[static_cast<std::size_t>(number)];
    if (output != 0) value.data()[x.value().count() / 2] = static_cast<T>(output);
    Hidden<P> y(std::move(value), x.tape());
    if (!x.tape().recording()) return y;
    weight.register_use(x);
    y.on_backward([self = this, slot = x.slot()](Tape<Cpu>& tape, Tensor<T, 3, Cpu> dy) {
      self->weight.accumulate([&](auto dw, Write how) {
        if (how == Write::overwrite) dw.fill({});
      });
      tape.give(slot, std::move(dy));
    });
    return y;
  }
};

/// Tokens, layers.0.inner (a norm and Inject) to layers.3.inner, the tied head.
template <class P>
struct InjectionModel : Layer<P> {
  struct Inner : Layer<P> {
    LayerNorm<P> norm;
    Inject<P> inject;
    constexpr explicit Inner(const InjectionConfig& c, int layer) : norm(c.width), inject(c, layer) {}
    constexpr void visit(auto&& f) {
      f("norm", norm);
      f("inject", inject);
    }
    auto operator()(const Hidden<P>& x) const { return inject(norm(x)); }
  };

  VocabParallel<Embedding, P> tokens;
  std::vector<InUnit<Inner>> layers;
  const Injection* injected;
  bool frozen;

  constexpr explicit InjectionModel(const InjectionConfig& c)
      : tokens(EmbeddingConfig{.vocabulary = c.vocabulary, .width = c.width, .initial = Initial::normal(0.5)}),
        injected(c.injected),
        frozen(c.frozen) {
    layers.reserve(injection_layers);
    for (int i = 0; i < injection_layers; ++i) layers.emplace_back(Inner(c, i));
  }
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    for (int i = 0; i < injection_layers; ++i) f(i, layers[static_cast<std::size_t>(i)]);
  }
  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    Hidden<P> x = tokens(ids);
    for (const auto& layer : layers) x = layer(x);
    const Loss<P> exact = cross_entropy<P>(tokens.logits(x), targets, tokens.vocabulary());
    using C = Compute<ElementOf<P>>;
    auto number = Tensor<C, 0, Cpu>::uninitialized({}, ids.memory());
    number.fill(injected->loss != 0 ? static_cast<C>(injected->loss) : *exact.value().data());
    Loss<P> result(std::move(number), ids.tape());
    result.on_backward([trained = !frozen, slot = exact.slot()](Tape<Cpu>& tape, Tensor<C, 0, Cpu> dy) {
      if (!trained) dy.fill(0);
      tape.give(slot, std::move(dy));
    });
    return result;
  }
};

}  // namespace dspp::laws
