// SPDX-License-Identifier: Apache-2.0
/// Runs and values on the paper device beside the Cpu, and text from a model that names no vocabulary.
// expected-error {{dspp: run needs a policy on Cpu or Cuda. plan<Model>(...) is what runs on Meta.}}
// expected-error {{dspp: value_beside needs a parameter on the device of the value, but it is on another. Give the}}
// expected-error {{layers one policy.}}
// expected-error {{dspp: generate needs a model with config.vocabulary, but this one has none. Add a member config}}
// expected-error {{that has it, as Gpt does.}}
#include <dspp/autograd/operators.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/nn/value_beside.hpp>

using namespace dspp;
using P = Policy<F32>;

namespace run_on_paper {
#ifdef DSPP_TWIN
void f() {
  run_ranks_of<P>({.ranks = 2}, [](World<P>&) {});
}
#else
void f() {
  run_ranks_of<Policy<F32, Meta>>({.ranks = 2}, [](World<Policy<F32, Meta>>&) {});
}
#endif
}  // namespace run_on_paper

namespace parameter_on_paper {
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x, const ParameterOf<P, 1>& gain) {
  return x * value_beside(x, gain);
}
#else
auto f(const Hidden<P>& x, const ParameterOf<Policy<F32, Meta>, 1>& gain) {
  return value_beside(x, gain);
}
#endif
}  // namespace parameter_on_paper

namespace vocabulary_unknown {
#ifdef DSPP_TWIN
using Model = Gpt<P>;
#else
struct Model : Layer<P> {
  Gpt<P> inner;
  explicit Model(const GptConfig& c) : inner(c) {}
  void visit(auto&& f) { f("inner", inner); }
  auto operator()(const Tokens<P>& ids) const { return inner(ids); }
  auto logits_at(const Tokens<P>& ids, Size position) const { return inner.logits_at(ids, position); }
};
#endif
auto f(Weights<Model>& weights) {
  return generate(weights, {1, 2}, {.tokens = 2, .sequence = 8});
}
}  // namespace vocabulary_unknown
