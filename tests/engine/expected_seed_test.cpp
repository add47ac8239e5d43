// SPDX-License-Identifier: Apache-2.0
// The seed that Engine announces before forward is that of backward, and logits become their gradient by it.
// labels: thread
#include <vector>

#include <doctest/doctest.h>

#include <dspp/engine/engine.hpp>
#include <dspp/nn/embedding.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/parallel/vocab.hpp>

#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size vocabulary = 13, width = 8;

/// What passes a loss in a micro-step.
struct Seen {
  double expected = 0, seed = 0;
  std::vector<double> logits{}, after_loss{}, gradient{};
};

template <class Values>
std::vector<double> in_f64(const Values* from, Size count) {
  std::vector<double> values;
  for (Size i = 0; i < count; ++i) values.push_back(static_cast<double>(from[i]));
  return values;
}

/// x, whose gradient is shown to see(dx).
template <class X, class See>
X shown(const X& x, See see) {
  X y(x.value(), x);
  using Gradient = Tensor<typename X::Element, X::rank, Cpu>;
  y.on_backward([slot = x.slot(), see](Tape<Cpu>& tape, Gradient dy) {
    see(dy);
    tape.give(slot, std::move(dy));
  });
  return y;
}

/// A table and its logits, with `seen` before and behind the loss.
template <class P>
struct Shown : Layer<P> {
  VocabParallel<Embedding, P> tokens;
  Seen* seen;

  explicit Shown(Seen* seen)
      : tokens(EmbeddingConfig{.vocabulary = vocabulary, .width = width, .initial = Initial::normal(0.5)}),
        seen(seen) {}
  constexpr void visit(auto&& f) { f("tokens", tokens); }
  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    auto& context = ids.tape().context();
    auto logits = shown(tokens.logits(tokens(ids)),
                        [to = seen](const auto& dx) { to->gradient = in_f64(dx.data(), dx.count()); });
    const auto* const block = logits.value().data();
    const Size count = logits.value().count();
    *seen = {.expected = context.expected_seed, .logits = in_f64(block, count)};
    const Loss<P> mean = cross_entropy<P>(std::move(logits), targets, vocabulary);
    seen->after_loss = in_f64(block, count);  // backward has them
    auto loss = shown(mean, [to = seen](const auto& dy) { to->seed = static_cast<double>(*dy.data()); });
    loss.counted = mean.counted;
    return loss;
  }
};

template <class P>
void check_seeds(Size accumulate, const EngineConfig& config, double scale) {
  using T = ElementOf<P>;
  CAPTURE(accumulate);
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Seen seen;
    Engine<Shown<P>, AdamW> engine(world, Shown<P>(&seen), AdamW{.lr = 1e-2}, {.accumulate = accumulate}, config);
    for (Size micro_step = 0; micro_step < 2 * accumulate; ++micro_step) {
      auto batch = batch_of(world.memory(), 12 * micro_step, 2 * world.data_rank(), 2, 12, vocabulary);
      auto loss = engine.forward(batch);
      CHECK(seen.expected == scale / static_cast<double>(2 * accumulate));
      engine.backward(loss);
      CHECK(static_cast<Compute<T>>(seen.expected) == static_cast<Compute<T>>(seen.seed));
      CHECK((seen.after_loss != seen.logits) == !std::is_same_v<T, f16>);
      CHECK((seen.after_loss == seen.gradient) == !std::is_same_v<T, f16>);
      engine.step();
    }
  });
}

}  // namespace

TEST_CASE("the seed that a context expects is that of backward: logits are their gradient after forward") {
  for (const Size accumulate : {2, 3}) {
    check_seeds<Policy<F32>>(accumulate, {}, 1);
    check_seeds<Policy<F32, Zero<2>>>(accumulate, {}, 1);
    check_seeds<Policy<F16>>(accumulate, {.loss_scale = {.fixed = 1000}}, 1000);
    check_seeds<Policy<F16, Zero<2>>>(accumulate, {.loss_scale = {.fixed = 1000}}, 1000);
  }
}
