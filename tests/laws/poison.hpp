// SPDX-License-Identifier: Apache-2.0
/// A small model with a layer that puts a value chosen by the test into its parameter's gradient on one rank.
#pragma once

#include <dspp/nn/embedding.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/zero/in_unit.hpp>

namespace dspp::laws {

struct PoisonConfig {
  Size vocabulary = 61, width = 24;
  const double* injected = nullptr;  ///< of this rank; 0: none
  const Size* element = nullptr;     ///< of this rank's gradient, where it goes; null: number 3
};

/// The identity, with a parameter whose gradient is what is injected in one element, else 0. `Whole`: every Tp rank
/// holds all of it; else it is cut over Tp.
template <class P, bool Whole>
struct Poison : Layer<P> {
  template <class Q>
  using on = Poison<Q, Whole>;

  ParameterOf<P, 1> weight;
  const double* injected;
  const Size* element;

  constexpr explicit Poison(const PoisonConfig& c)
      : weight("Poison weight", shape(c.width), Initial::ones(), Whole ? Cut{} : Cut{0, P::tp}),
        injected(c.injected),
        element(c.element) {}
  constexpr void visit(auto&& f) { f("weight", weight); }

  constexpr Hidden<P> operator()(const Hidden<P>& x) const {
    using T = ElementOf<P>;
    Hidden<P> y(x.value(), x.tape());
    if (!x.tape().recording()) return y;
    weight.register_use(x);
    y.on_backward([self = this, slot = x.slot()](Tape<Cpu>& tape, Tensor<T, 3, Cpu> dy) {
      self->weight.accumulate([&](auto dw, Write how) {
        if (how == Write::overwrite) dw.fill({});
        if (*self->injected != 0)
          dw.data()[self->element ? *self->element : 3] =
              static_cast<std::remove_reference_t<decltype(*dw.data())>>(*self->injected);
      });
      tape.give(slot, std::move(dy));
    });
    return y;
  }
};

/// Embedding, a unit with a norm and both kinds of Poison, the tied head.
template <class P, bool Whole>
struct PoisonedModel : Layer<P> {
  struct Inside : Layer<P> {
    LayerNorm<P> norm;
    Poison<P, Whole> poison;
    constexpr explicit Inside(const PoisonConfig& c) : norm(c.width), poison(c) {}
    constexpr void visit(auto&& f) {
      f("norm", norm);
      f("poison", poison);
    }
    constexpr auto operator()(const Hidden<P>& x) const { return poison(norm(x)); }
  };

  VocabParallel<Embedding, P> tokens;
  InUnit<Inside> inside;

  constexpr explicit PoisonedModel(const PoisonConfig& c)
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
