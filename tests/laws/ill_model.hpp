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

inline constexpr int ill_layers = 4;

/// Of this rank. 0: none.
struct Dose {
  std::array<double, ill_layers> output{};  ///< takes the place of an element of the layer's output
  double loss = 0;                          ///< takes the place of the loss, whose gradient stays
};

struct IllConfig {
  Size vocabulary = 61, width = 24;
  const Dose* dose = nullptr;
  bool frozen = false;  ///< no gradient goes on from the loss
};

/// The identity except for the dose; uses its parameter.
template <class P>
struct Ill : Layer<P> {
  template <class Q>
  using on = Ill<Q>;

  ParameterOf<P, 1> weight;
  const Dose* dose;
  int number;

  constexpr explicit Ill(const IllConfig& c, int layer)
      : weight("Ill weight", shape(c.width), Initial::ones()), dose(c.dose), number(layer) {}
  constexpr void visit(auto&& f) { f("weight", weight); }

  Hidden<P> operator()(const Hidden<P>& x) const {
    using T = ElementOf<P>;
    auto value = Tensor<T, 3, Cpu>::uninitialized(x.shape(), x.memory());
    std::copy_n(x.value().data(), x.value().count(), value.data());
    (void)weight.value();
    const double output = dose->output[static_cast<std::size_t>(number)];
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

/// Tokens, layers.0.inner (a norm and Ill) to layers.3.inner, the tied head.
template <class P>
struct IllModel : Layer<P> {
  struct Inner : Layer<P> {
    LayerNorm<P> norm;
    Ill<P> ill;
    constexpr explicit Inner(const IllConfig& c, int layer) : norm(c.width), ill(c, layer) {}
    constexpr void visit(auto&& f) {
      f("norm", norm);
      f("ill", ill);
    }
    auto operator()(const Hidden<P>& x) const { return ill(norm(x)); }
  };

  VocabParallel<Embedding, P> tokens;
  std::vector<InUnit<Inner>> layers;
  const Dose* dose;
  bool frozen;

  constexpr explicit IllModel(const IllConfig& c)
      : tokens(EmbeddingConfig{.vocabulary = c.vocabulary, .width = c.width, .initial = Initial::normal(0.5)}),
        dose(c.dose),
        frozen(c.frozen) {
    layers.reserve(ill_layers);
    for (int i = 0; i < ill_layers; ++i) layers.emplace_back(Inner(c, i));
  }
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    for (int i = 0; i < ill_layers; ++i) f(i, layers[static_cast<std::size_t>(i)]);
  }
  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    Hidden<P> x = tokens(ids);
    for (const auto& layer : layers) x = layer(x);
    const Loss<P> exact = cross_entropy<P>(tokens.logits(x), targets, tokens.vocabulary());
    using C = Compute<ElementOf<P>>;
    auto number = Tensor<C, 0, Cpu>::uninitialized({}, ids.memory());
    number.fill(dose->loss != 0 ? static_cast<C>(dose->loss) : *exact.value().data());
    Loss<P> result(std::move(number), ids.tape());
    result.on_backward([healthy = !frozen, slot = exact.slot()](Tape<Cpu>& tape, Tensor<C, 0, Cpu> dy) {
      if (!healthy) dy.fill(0);
      tape.give(slot, std::move(dy));
    });
    return result;
  }
};

}  // namespace dspp::laws
