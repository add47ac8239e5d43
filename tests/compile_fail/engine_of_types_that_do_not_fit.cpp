// SPDX-License-Identifier: Apache-2.0
/// An Engine of a world, a model or an optimizer that it cannot work with.
// expected-error {{dspp: Engine needs a World of its model's policy, but this one is of another. Give run}}
// expected-error {{and the model}}
// expected-error {{one policy.}}
// expected-error {{dspp: Engine needs a model with loss(tokens, targets), but this one has no member loss.}}
// expected-error {{Add one that}}
// expected-error {{returns Loss<P>, as Gpt does.}}
// expected-error {{dspp: Engine needs an optimizer with the number of its moments, but this one has none. Add static}}
// expected-error {{constexpr int moment_count = 0, 1 or 2.}}
// expected-error {{dspp: train_batch needs a Batch on the engine's device, or a range of them, one for each}}
// expected-error {{micro-step, but got another type. Give it std::array{first, second}, or what batches()}}
#include <dspp/engine/engine.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

using namespace dspp;

/// A world of another ZeRO stage than the model's.
namespace engine_in_a_world_of_another_policy {
using P = Policy<Zero<2>>;
using Q = Policy<Zero<3>>;
#ifdef DSPP_TWIN
void f(World<P>& world) {
  Engine engine{world, Gpt<P>{GptConfig{}}, AdamW{}};
}
#else
void f(World<Q>& world) {
  Engine engine{world, Gpt<P>{GptConfig{}}, AdamW{}};
}
#endif
}  // namespace engine_in_a_world_of_another_policy

/// A model whose loss has another name.
namespace engine_of_a_model_without_loss {
using P = Policy<>;
struct Model : Layer<P> {
  Embedding<P> table{8, 4};
  constexpr void visit(auto&& f) { f("table", table); }
#ifdef DSPP_TWIN
  Loss<P> loss(const Tokens<P>&, const Tokens<P>&) const;
#else
  Loss<P> cost(const Tokens<P>&, const Tokens<P>&) const;
#endif
};
using E = Engine<Model, AdamW>;
constexpr auto bytes = sizeof(E);
}  // namespace engine_of_a_model_without_loss

/// Tokens in place of a batch.
namespace train_batch_of_tokens {
using P = Policy<>;
using E = Engine<Gpt<P>, AdamW>;
#ifdef DSPP_TWIN
auto f(E& engine, const Batch<Cpu>& batch) {
  return engine.train_batch(batch);
}
#else
auto f(E& engine, const Batch<Cpu>& batch) {
  return engine.train_batch(batch.tokens);
}
#endif
}  // namespace train_batch_of_tokens

/// An optimizer without a number of moments.
namespace engine_with_an_unfit_optimizer {
struct Descent {
#ifdef DSPP_TWIN
  static constexpr int moment_count = 0;
#endif
  double lr = 0.1;
  template <class S>
  auto rule(const UpdateScalars&) const {
    return [](auto&) {};
  }
};
using E = Engine<Gpt<Policy<>>, Descent>;
constexpr auto bytes = sizeof(E);
}  // namespace engine_with_an_unfit_optimizer
