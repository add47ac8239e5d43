// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/layer_norm.hpp>

#include "../laws/layer_gradient.hpp"

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("LayerNorm's gradients are finite differences") {
  using P = Policy<F64>;
  check_layer_gradient(LayerNorm<P>(5), shape(2, 3, 5));
  check_layer_gradient<Dense<double, 2>>(LayerNorm<P>(4, 1e-2), shape(3, 4));
}

TEST_CASE("LayerNorm's parameters take no part in weight decay") {
  const LayerNorm<Policy<>> norm(4);
  CHECK_FALSE(norm.weight.decays);
  CHECK_FALSE(norm.bias.decays);
}

namespace {
template <class Q>
void check_precision(double bound) {
  using T = ElementOf<Q>;
  constexpr Size rows = 6, width = 16;
  TestRank exact, rounded;
  LayerNorm<Policy<F64>> reference(width);
  LayerNorm<Q> norm(width);
  Home<double> reference_home(reference, exact);
  Home<T> home(norm, rounded);
  for (std::size_t i = 0; i < 2; ++i)
    for (Size j = 0; j < width; ++j) reference_home.value(i).data()[j] = static_cast<double>(home.value(i).data()[j]);
  const auto x = random<T>(shape(rows, width), rounded.pool, 8), dy = random<T>(shape(rows, width), rounded.pool, 9);
  Dense<T, 2> input(x, rounded.tape);
  Dense<double, 2> reference_input(copy(x), exact.tape);
  const auto y = norm(input);
  const auto reference_y = reference(reference_input);
  check_close(y.value(), reference_y.value(), bound);
  rounded.tape.backward(y.slot(), copy<T>(dy));
  exact.tape.backward(reference_y.slot(), copy(dy));
  check_close(rounded.tape.template take<T, 2>(input.slot(), x.shape()),
              exact.tape.template take<double, 2>(reference_input.slot(), x.shape()), bound);
  for (std::size_t i = 0; i < 2; ++i) check_close(home.gradient(i), reference_home.gradient(i), bound);
}
}  // namespace

TEST_CASE("LayerNorm in f32 and bf16 is as close to f64 as its sums round") {
  // Sums of 16 terms up to 4 in f32, then some ten operations on values up to 16: (16 * 4 + 10 * 16) u of f32. bf16
  // rounds the result once more.
  constexpr double sums = (16 * 4 + 10 * 16) * rounding<float>;
  check_precision<Policy<F32>>(sums);
  check_precision<Policy<Bf16>>(sums + rounding<bf16>);
}
