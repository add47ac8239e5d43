// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/linear.hpp>

#include "../laws/layer_gradient.hpp"

using namespace dspp;
using namespace dspp::laws;

using P = Policy<F64>;

TEST_CASE("Linear's gradients are finite differences, with and without bias, in groups, for any rank of input") {
  check_layer_gradient(Linear<P>({.in = 5, .out = 6}), shape(2, 3, 5));
  check_layer_gradient(Linear<P>({.in = 5, .out = 6, .bias = false}), shape(2, 3, 5));
  check_layer_gradient(Linear<P>({.in = 4, .out = 9, .groups = 3}), shape(2, 2, 4));
  check_layer_gradient<Dense<double, 2>>(Linear<P>(4, 3), shape(3, 4));
}

TEST_CASE("Linear's halves compose to the whole") {
  TestRank here;
  Linear<P> layer({.in = 4, .out = 3});
  Home<double> home(layer, here);
  Dense<double, 2> x(random<double>(shape(3, 4), here.pool, 8), here.tape);
  const auto whole = layer(x);
  const auto halves = layer.shift(layer.times<Invariant>(x));
  check_close(halves.value(), whole.value(), 4 * rounding<double>);
  here.tape.clear();
  home.forget_gradients();
  check_variable_gradient<Dense<double, 2>>(
      here, [&](const auto& v) { return layer.shift(layer.template times<Invariant>(v)); }, x.value());
}

TEST_CASE("Linear of x with other features is an error that names both") {
  TestRank here;
  Linear<P> layer(4, 3);
  Home<double> home(layer, here);
  Dense<double, 2> x(Tensor<double, 2>::zeros(shape(3, 5), here.pool), here.tape);
  CHECK_THROWS_WITH_AS(
      layer(x), "dspp: Linear needs 4 features, but its input is [3, 5]. Check the width of the layer before it.",
      Error);
}

TEST_CASE("a Linear without outputs, or whose groups do not divide them, is an error") {
  CHECK_THROWS_AS((Linear<P>(4, 0)), Error);
  CHECK_THROWS_AS((Linear<P>({.in = 4, .out = 8, .groups = 3})), Error);
}

TEST_CASE("a parameter that visit() did not name is an error that names it") {
  TestRank here;
  const Linear<P> layer({.in = 4, .out = 3, .bias = false});
  Dense<double, 2> x(Tensor<double, 2>::zeros(shape(3, 4), here.pool), here.tape);
  CHECK_THROWS_WITH_AS(layer(x),
                       "dspp: a parameter needs to be named by its layer's visit(), but Linear weight [1, 3, 4] was "
                       "reached in forward without. Add it to visit().",
                       Error);
}

namespace {
/// Largest difference of f(bf16 or f32) from f64 over y, dx, dW and db, over max(1, |reference|).
template <class Q>
void check_precision() {
  using T = ElementOf<Q>;
  constexpr Size in = 16, out = 8, rows = 6;
  TestRank exact, rounded;
  Linear<P> reference(in, out);
  Linear<Q> layer(in, out);
  Home<double> reference_home(reference, exact);
  Home<T> home(layer, rounded);
  const auto x = random<T>(shape(rows, in), rounded.pool, 8), dy = random<T>(shape(rows, out), rounded.pool, 9);
  for (std::size_t i = 0; i < 2; ++i)
    for (Size j = 0; j < home.value(i).count(); ++j)
      reference_home.value(i).data()[j] = static_cast<double>(home.value(i).data()[j]);
  Dense<T, 2> input(x, rounded.tape);
  Dense<double, 2> reference_input(copy(x), exact.tape);
  const auto y = layer(input);
  const auto reference_y = reference(reference_input);
  // A sum of n products, in Compute<T>: error n u sum |a b|, with |a| <= 4, |b| <= 4; then one rounding to T.
  using C = Compute<T>;
  const auto bound = [](Size n) { return rounding<C> * static_cast<double>((n + 1) * n * 16) + rounding<T>; };
  check_close(y.value(), reference_y.value(), bound(in));
  rounded.tape.backward(y.slot(), copy<T>(dy));
  exact.tape.backward(reference_y.slot(), copy(dy));
  check_close(rounded.tape.template take<T, 2>(input.slot(), x.shape()),
              exact.tape.template take<double, 2>(reference_input.slot(), x.shape()), bound(out));
  for (std::size_t i = 0; i < 2; ++i) check_close(home.gradient(i), reference_home.gradient(i), bound(rows));
}
}  // namespace

TEST_CASE("Linear in f32 and bf16 is as close to f64 as its sums round") {
  check_precision<Policy<F32>>();
  check_precision<Policy<Bf16>>();
}
