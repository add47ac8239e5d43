// SPDX-License-Identifier: Apache-2.0
/// The models of drawn tasks. Which layers a model has is said at run time, so that one instantiation per policy serves
/// all.
#pragma once

#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/report.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/llama.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/models/positions.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/parallel/tiled_loss.hpp>
#include <dspp/parallel/vocab_bias.hpp>
#include <dspp/zero/in_unit.hpp>
#include <laws/random_parts.hpp>
#include <laws/random_tasks.hpp>

namespace dspp::laws {

template <class P>
struct RandomModel : Layer<P> {
  DrawnModel drawn;
  VocabParallel<Embedding, P> tokens;
  Maybe<Positions<P>> positions;
  /// Part i in the list of its home.
  Maybe<RandomPart<P>> root[most_parts];
  Maybe<InUnit<RandomPart<P>>> units[most_parts];
  Maybe<Recompute<RandomPart<P>>> recomputed[most_parts];
  Maybe<InUnit<Recompute<RandomPart<P>>>> recomputed_units[most_parts];
  Maybe<Stack<Mlp<P>>> stack;
  Maybe<LayerNorm<P>> norm;
  Maybe<VocabBias<P>> vocab_bias;
  Maybe<ColumnParallel<Linear, P>> head;
  Maybe<Linear<P>> plain_head;
  Maybe<Embedding<P>> plain_table;
  Maybe<Llama<P>> llama;
  Maybe<Gpt<P>> gpt;

  explicit RandomModel(const DrawnModel& model)
      : drawn(model),
        tokens(EmbeddingConfig{.vocabulary = model.vocabulary, .width = model.width, .initial = Initial::normal(0.5)}) {
    if (model.family == Family::llama) llama.emplace(RandomPart<P>::llama_of(model, model.parts[0]));
    if (model.family == Family::gpt) gpt.emplace(RandomPart<P>::gpt_of(model, model.parts[0]));
    if (model.family != Family::parts) return;
    if (model.longest > 0) positions.emplace(model.longest, model.width, weights_of(model));
    for (std::size_t i = 0; i < model.parts.size(); ++i) {
      RandomPart<P> layer(model, model.parts[i]);
      switch (model.parts[i].home) {
        case PartHome::unit: units[i].emplace(std::move(layer)); break;
        case PartHome::recomputed: recomputed[i].emplace(std::move(layer)); break;
        case PartHome::recomputed_unit: recomputed_units[i].emplace(Recompute<RandomPart<P>>(std::move(layer))); break;
        default: root[i].emplace(std::move(layer)); break;
      }
    }
    const MlpConfig block{.width = model.width, .ffn_width = 2 * model.heads, .initial = weights_of(model)};
    if (model.stacked > 0) stack.emplace(model.stacked, block), (*stack).segments = model.segments;
    if (model.final_norm) norm.emplace(model.width);
    if (model.vocab_bias) vocab_bias.emplace(model.vocabulary);
    const LinearConfig scores{.in = model.width, .out = model.scores, .bias = false, .initial = weights_of(model)};
    if (model.head == Head::column) head.emplace(scores);
    if (model.head == Head::plain) plain_head.emplace(scores);
    if (model.head == Head::table)
      plain_table.emplace(EmbeddingConfig{.vocabulary = scores.out, .width = model.width, .initial = scores.initial});
  }

  constexpr void visit(auto&& f) {
    if (llama) return f("llama", *llama);
    if (gpt) return f("gpt", *gpt);
    f("tokens", tokens);
    if (positions) f("positions", *positions);
    for (std::size_t i = 0; i < drawn.parts.size(); ++i)
      at(*this, i, [&](auto& part) { f(static_cast<int>(i), part); });
    if (stack) f("stack", *stack);
    if (norm) f("norm", *norm);
    if (vocab_bias) f("vocab_bias", *vocab_bias);
    if (head) f("head", *head);
    if (plain_head) f("plain_head", *plain_head);
    if (plain_table) f("plain_table", *plain_table);
  }

  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    if (llama) return with_nonfinite(llama->loss(ids, targets));
    if (gpt) return with_nonfinite(gpt->loss(ids, targets));
    const auto x = states(tokens(ids), ids);
    if (drawn.auxiliary_alone) return with_nonfinite(0.5 * auxiliary(x));
    const Loss<P> loss = with_nonfinite(of_logits(x, targets));
    report("cross-entropy", loss);
    return drawn.auxiliary == Auxiliary::none ? loss : loss + 0.5 * auxiliary(x);
  }

  /// The last hidden states, from the vectors of the tokens.
  Hidden<P> states(Hidden<P> x, const Tokens<P>& ids) const {
    if (plain_table) x = x + redistribute<typename P::HiddenState>((*plain_table)(ids));
    if (positions) x = (*positions)(x);
    for (int i : drawn.order) at(*this, static_cast<std::size_t>(i), [&](const auto& part) { x = part(x); });
    if (stack) x = x + (*stack)(x);
    if (norm) x = (*norm)(x);
    if (drawn.nonfinite && *drawn.nonfinite == NonFiniteKind::infinite_gradient) x = with_infinite_gradient(x);
    return x;
  }
  /// The cross-entropy of the last hidden states.
  Loss<P> of_logits(const Hidden<P>& x, const Tokens<P>& targets) const {
    if (plain_head) return of_whole_scores((*plain_head)(x), targets);
    if (plain_table) return of_whole_scores(plain_table->logits(redistribute<Invariant>(x)), targets);
    if (head) return cross_entropy<P>((*head)(x), targets, tokens.vocabulary(), options());
    if (drawn.loss_chunk_tokens > 0) return TiledLoss<P>(drawn.loss_chunk_tokens)(tokens, x, targets, options());
    const auto logits = tokens.logits(x);
    return cross_entropy<P>(vocab_bias ? (*vocab_bias)(logits) : logits, targets, tokens.vocabulary(), options());
  }
  /// Multiplied with what is not finite, if this rank is drawn to.
  Loss<P> with_nonfinite(const Loss<P>& loss) const {
    using Limits = std::numeric_limits<double>;
    const NonFiniteKind now = drawn.nonfinite ? *drawn.nonfinite : NonFiniteKind::none;
    if (now == NonFiniteKind::nan_loss) return Limits::quiet_NaN() * loss;
    return now == NonFiniteKind::none || (now == NonFiniteKind::infinite_gradient && drawn.family == Family::parts)
               ? loss
               : Limits::infinity() * loss;
  }

 private:
  template <class X>
  Loss<P> of_whole_scores(const X& scores, const Tokens<P>& targets) const {
    if (drawn.whole_logits)
      return cross_entropy<P>(redistribute<Invariant>(scores), targets, tokens.vocabulary(), options());
    return cross_entropy<P>(redistribute<Shard<-1>>(scores), targets, tokens.vocabulary(), options());
  }
  CrossEntropyOptions options() const { return {.label_smoothing = drawn.label_smoothing}; }
  static Hidden<P> with_infinite_gradient(const Hidden<P>& x) {
    Hidden<P> y(x.value(), x);
    y.on_backward([slot = x.slot()](Tape<DeviceOf<P>>& tape, Tensor<ElementOf<P>, 3, DeviceOf<P>> dy) {
      tape.give(slot, ops::scale(std::move(dy), std::numeric_limits<double>::infinity()));
    });
    return y;
  }
  Loss<P> auxiliary(const Hidden<P>& x) const {
    if (drawn.auxiliary == Auxiliary::mean) return whole(mean(x));
    const double elements = static_cast<double>(x.value().count()) * (P::sequence_parallel ? P::tp : 1);
    return 1 / elements * (drawn.auxiliary == Auxiliary::sum ? whole(sum(x)) : whole(squared_norm(x)));
  }
  template <class X>
  static Loss<P> whole(const X& x) {
    if constexpr (std::is_same_v<X, Loss<P>>)
      return x;
    else
      return redistribute<Invariant>(x);
  }
  template <class Self, class F>
  static void at(Self& self, std::size_t i, F f) {
    switch (self.drawn.parts[i].home) {
      case PartHome::unit: return f(*self.units[i]);
      case PartHome::recomputed: return f(*self.recomputed[i]);
      case PartHome::recomputed_unit: return f(*self.recomputed_units[i]);
      default: return f(*self.root[i]);
    }
  }
};

}  // namespace dspp::laws
