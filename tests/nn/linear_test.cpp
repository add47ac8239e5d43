// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/linear.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

using P = Policy<F64>;

TEST_CASE("Linear's gradients are finite differences, with and without bias, in groups, for any rank of input") {
  check_layer_gradient(Linear<P>({.in = 5, .out = 6}), shape(2, 3, 5));
  check_layer_gradient(Linear<P>({.in = 5, .out = 6, .bias = false}), shape(2, 3, 5));
  check_layer_gradient(Linear<P>({.in = 4, .out = 9, .groups = 3}), shape(2, 2, 4));
  check_layer_gradient<Dense<double, 2>>(Linear<P>(4, 3), shape(3, 4));
}

namespace {
/// Linear as a parallel wrapper uses it.
struct Halves : Linear<P> {
  using Linear<P>::Linear;
  using Linear<P>::times;
};
}  // namespace

TEST_CASE("Linear's halves compose to the whole") {
  TestRank here;
  Halves layer({.in = 4, .out = 3});
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
  for (const Size groups : {0, -3})
    CHECK_THROWS_WITH_AS((Linear<P>({.in = 4, .out = 9, .groups = groups})),
                         ("dspp: Linear needs at least one group of outputs, but got less (groups " +
                          std::to_string(groups) + "). Raise groups.")
                             .c_str(),
                         Error);
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
constexpr Size in = 256, out = 192, rows = 2 * 64;  // the lengths of its three contractions
const Global<3> x = global_normal(shape(2, 64, in), 1), dy = global_normal(shape(2, 64, out), 2);
}  // namespace

TEST_CASE("Linear in f32, bf16 and f16 is as close to f64 as sums in f32, rounded once, are") {
  const LayerRoundings counted{.y = {1, in + 1}, .dx = {1, out}, .parameters = {1, rows}};
  check_layer_precision([]<class Q> { return Linear<Q>(in, out); }, x, dy, counted);
  check_layer_precision([]<class Q> { return Linear<Q>({.in = in, .out = out, .bias = false, .groups = 3}); }, x, dy,
                        counted);
}

TEST_CASE("a product that is summed in bf16 is less close") {
  const Global<3> a = in_every_type(x), b = in_every_type(dy);  // a^T b, as in the gradient of the weight
  std::vector<double> exact, in_bf16;
  for (Size i = 0; i < in; ++i)
    for (Size j = 0; j < out; ++j) {
      double sum = 0;
      bf16 rounded;
      for (Size r = 0; r < rows; ++r) {
        const double product = a.data()[r * in + i] * b.data()[r * out + j];
        sum += product;
        rounded = static_cast<bf16>(static_cast<double>(rounded) + product);
      }
      exact.push_back(sum);
      in_bf16.push_back(static_cast<double>(rounded));
    }
  const double error = relative_distance(in_bf16, exact), bound = Roundings{1, rows}.bound<bf16>();
  CHECK(error > 2 * bound);
  CHECK(error < 4 * bound);  // 0.28 sqrt(128) = 3.2: the estimate on which all bounds rest
}
