// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/nn/value_beside.hpp>

#include <laws/parallel_layer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// tanh(x gain + shift) gain: one parameter used twice.       x [batch, sequence, width]
template <class P>
struct Gain : Layer<P> {
  ParameterOf<P, 1> gain, shift;
  constexpr explicit Gain(Size width)
      : gain("Gain", shape(width), Initial::ones()), shift("Shift", shape(width), Initial::zeros()) {}
  constexpr void visit(auto&& f) { f("gain", gain), f("shift", shift); }
  template <Tracked X>
  constexpr X operator()(const X& x) const {
    const auto by = value_beside(x, gain);
    return tanh(x * by + value_beside(x, shift)) * by;
  }
};

}  // namespace

TEST_CASE("the gradient of a parameter beside a value is a finite difference") {
  check_layer_gradient(Gain<Policy<F64>>(5), shape(2, 3, 5));
  check_layer_gradient(Gain<Policy<F64>>(1), shape(4, 1, 1));
}

TEST_CASE("parameters beside whole values and beside positions that ranks split have the dense gradients") {
  const Global<3> x = global_normal(shape(2, 12, 6), 1), dy = global_normal(x.shape, 2);
  const auto run = [&]<class P, class State>(P, State) {
    return run_layer<P, State, State>([] { return Gain<P>(6); }, call_layer, x, dy);
  };
  const auto dense = run(Whole<1>(), Invariant());
  check_same(run(Whole<2>(), Invariant()), dense);
  check_same(run(Whole<3>(), Shard<1>()), dense);
  check_same(run(Split<2>(), Shard<1>()), dense);
}

TEST_CASE("a parameter that Tp cuts is an error that names it") {
  TestRank here;
  const Dense<double, 3> x(Tensor<double, 3>::zeros(shape(2, 3, 4), here.pool), here.tape);
  const Parameter<double, 1, Cpu> cut("Gain", shape(4), Initial::ones(), Cut{.dimension = 0, .parts = 2});
  CHECK_THROWS_WITH_AS(value_beside(x, cut),
                       "dspp: value_beside needs a parameter that every rank has whole, but Gain is cut over Tp. "
                       "Describe it without a Cut.",
                       Error);
}
