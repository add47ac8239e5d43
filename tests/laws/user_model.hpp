// SPDX-License-Identifier: Apache-2.0
/// A model as a user would write it: own blocks, a layer with its own backward, a block used twice, a part never used.
#pragma once

#include <dspp/autograd/operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/sequential.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/nn/activation.hpp>

namespace dspp::laws {

/// y = x * factor, one factor per feature: a layer outside dspp.       x [batch, sequence, width]
template <class P>
struct Factors : Layer<P> {
  ParameterOf<P, 1> weight;

  constexpr explicit Factors(Size width) : weight("Factors weight", shape(width), Initial::ones()) {}
  constexpr void visit(auto&& f) { f("weight", weight); }

  constexpr Hidden<P> operator()(const Hidden<P>& x) const {
    using T = ElementOf<P>;
    using D = DeviceOf<P>;
    Hidden<P> y(times_factors(x.value()), x);
    if (!x.tape().recording()) return y;
    weight.register_use(x);
    y.on_backward([self = this, slot = x.slot(), saved = x.value()](Tape<D>& tape, Tensor<T, 3, D> dy) {
      self->weight.accumulate([&](auto dw, Write how) {
        if (how == Write::overwrite) dw.fill({});
        add_products(dw, dy, saved);
      });
      tape.give(slot, self->times_factors(dy));
    });
    return y;
  }

 private:
  /// dw[j] += the products of the columns j, in order. Reads and writes on the host, for any device.
  template <class G, class T, class D>
  static constexpr void add_products(const Tensor<G, 1, D>& dw, const Tensor<T, 3, D>& dy, const Tensor<T, 3, D>& x) {
    dw.read([&](const auto* before) {
      dy.read([&](const T* a) {
        x.read([&](const T* b) {
          dw.write([&](G* sums) {
            for (Size j = 0; j < dw.count(); ++j) sums[j] = before[j];
            for (Size i = 0; i < dy.count(); ++i) {
              G& sum = sums[i % dw.count()];
              sum = static_cast<G>(static_cast<double>(sum) + static_cast<double>(a[i]) * static_cast<double>(b[i]));
            }
          });
        });
      });
    });
  }
  constexpr auto times_factors(const Tensor<ElementOf<P>, 3, DeviceOf<P>>& x) const {
    using T = ElementOf<P>;
    auto y = Tensor<T, 3, DeviceOf<P>>::uninitialized(x.shape(), x.memory(), Category::activations, "factors");
    const auto factors = weight.value();
    y.write([&](T* out) {
      x.read([&](const T* in) {
        factors.read([&](const T* by) {
          for (Size i = 0; i < x.count(); ++i)
            out[i] = static_cast<T>(static_cast<double>(in[i]) * static_cast<double>(by[i % factors.count()]));
        });
      });
    });
    return y;
  }
};

/// The block of the README's first page, and Factors.
template <class P>
struct UserBlock : Layer<P> {
  LayerNorm<P> norm1, norm2;
  SelfAttention<P> attention;
  ColumnParallel<Linear, P> up;
  RowParallel<Linear, P> down;
  Factors<P> factors;

  constexpr explicit UserBlock(const GptConfig& c)
      : norm1(c.width),
        norm2(c.width),
        attention(AttentionConfig{.width = c.width, .heads = c.heads, .initial = Initial::normal(0.1)}),
        up(c.width, 2 * c.width),
        down(LinearConfig{.in = 2 * c.width, .out = c.width, .initial = Initial::normal(0.1)}),
        factors(c.width) {}

  constexpr void visit(auto&& f) {
    f("norm1", norm1);
    f("attention", attention);
    f("norm2", norm2);
    f("up", up);
    f("down", down);
    f("factors", factors);
  }

  constexpr auto operator()(const Hidden<P>& x) const {
    auto y = x + attention(norm1(x));
    return y + factors(down(gelu(up(norm2(y)))));
  }
};

/// User blocks in a Stack; one block outside it, used twice; a Sequential; an untied head; a layer never reached.
template <class P>
struct UserModel : Layer<P> {
  VocabParallel<Embedding, P> tokens;
  Stack<UserBlock<P>> blocks;
  UserBlock<P> twice;
  Sequential<P, ColumnParallel<Linear>, Relu, RowParallel<Linear>> feed;
  LayerNorm<P> norm;
  ColumnParallel<Linear, P> head;
  Linear<P> never;

  static constexpr Size vocabulary(const GptConfig& c) { return round_up(c.vocabulary, 12); }

  constexpr explicit UserModel(const GptConfig& c)
      : tokens(EmbeddingConfig{.vocabulary = vocabulary(c), .width = c.width, .initial = Initial::normal(0.5)}),
        blocks(2, c),
        twice(c),
        feed(ColumnParallel<Linear, P>(c.width, 3 * c.width), {}, RowParallel<Linear, P>(3 * c.width, c.width)),
        norm(c.width),
        head(LinearConfig{.in = c.width, .out = vocabulary(c), .bias = false, .initial = Initial::normal(0.1)}),
        never(c.width, 7) {}

  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("blocks", blocks);
    f("twice", twice);
    f("feed", feed);
    f("norm", norm);
    f("head", head);
    f("never", never);
  }

  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    const auto x = blocks(tokens(ids));
    const auto y = twice(twice(x));
    const auto logits = head(norm(y + feed(y)));
    return cross_entropy<P>(logits, targets, tokens.vocabulary());
  }
};

}  // namespace dspp::laws
