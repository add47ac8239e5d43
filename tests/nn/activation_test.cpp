// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/activation.hpp>
#include <dspp/nn/walk.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {
const Global<3> x = global_normal(shape(4, 12, 12), 1), dy = global_normal(shape(4, 12, 12), 2);

/// `Activation` is `function` and its backward: the same bits, of y and of dx, for x in `State` over three ranks.
template <class Activation, class State, class F>
void check_is(F function) {
  using P = Policy<F64, Tp<3>>;
  const auto make = [] { return Activation{}; };
  const auto run = [&](auto call) { return run_layer<P, State, State>(make, call, x, dy); };
  const auto layer = run(call_layer), direct = run([&](const auto&, const auto&in) { return function(in); });
  CHECK(layer.y.at == direct.y.at);
  CHECK(layer.dx.at == direct.dx.at);
  CHECK(layer.forward.total() + layer.backward.total() == 0);
}

template <class Activation, class F>
void check_is_everywhere(F function) {
  check_is<Activation, Invariant>(function);
  check_is<Activation, Replicate>(function);
  check_is<Activation, Shard<1>>(function);
  check_is<Activation, Shard<-1>>(function);
}
}  // namespace

TEST_CASE("Gelu, Relu and Silu are the functions of their names, in any finished placement, without communication") {
  check_is_everywhere<Gelu>([](const auto& in) { return gelu(in, GeluForm::tanh); });
  check_is_everywhere<Relu>([](const auto& in) { return relu(in); });
  check_is_everywhere<Silu>([](const auto& in) { return silu(in); });
}

TEST_CASE("activations have no parameters, and their gradients are finite differences") {
  check_layer_gradient(Gelu{}, shape(2, 3, 5));
  check_layer_gradient(Relu{}, shape(2, 3, 5));
  check_layer_gradient(Silu{}, shape(2, 3, 5));
  TestRank here;
  Gelu layer;
  CHECK(Home<double>(layer, here).entries().empty());
}

TEST_CASE("activations in f32, bf16 and f16 compute in f32 and round once") {
  // the exponential is some ten operations, what is around it ten more; relu picks and does not round
  const LayerRoundings counted{.y = {1, 20}, .dx = {1, 30}, .parameters = {}};
  check_layer_precision([]<class P> { return Gelu{}; }, x, dy, counted);
  check_layer_precision([]<class P> { return Silu{}; }, x, dy, counted);
  check_layer_precision([]<class P> { return Relu{}; }, x, dy, {});
}
