// SPDX-License-Identifier: Apache-2.0
// labels: models
#include <doctest/doctest.h>

#include <dspp/models/gated_mlp.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const GatedMlpConfig config{.width = 8, .ffn_width = 24};
const Global<3> x = global_normal(shape(2, 12, 8), 1), dy = global_normal(shape(2, 12, 8), 2);

template <class P>
auto mlp() {
  return run_layer<P, typename P::HiddenState, typename P::HiddenState>([] { return GatedMlp<P>(config); }, call_layer,
                                                                        x, dy);
}

}  // namespace

TEST_CASE("GatedMlp's gradients equal finite differences") {
  check_layer_gradient<Hidden<Policy<F64>>>(GatedMlp<Policy<F64>>({.width = 4, .ffn_width = 6}), shape(2, 2, 4));
}

TEST_CASE("GatedMlp is down(silu(gate) up) of its two groups") {
  using P = Policy<F64>;
  TestRank here;
  GatedMlp<P> layer({.width = 2, .ffn_width = 3});
  const Home<double> home(layer, here);
  const Hidden<P> input(random<double>(shape(1, 1, 2), here.pool, 8), here.tape);
  const auto y = layer(input);
  const double *gate = home.value(0).data(), *up = gate + 6, *down = home.value(1).data(), *v = input.value().data();
  double expected[2] = {};
  for (int i = 0; i < 3; ++i) {
    const double a = gate[2 * i] * v[0] + gate[2 * i + 1] * v[1], b = up[2 * i] * v[0] + up[2 * i + 1] * v[1];
    for (int o = 0; o < 2; ++o) expected[o] += down[3 * o + i] * a / (1 + std::exp(-a)) * b;
  }
  for (int o = 0; o < 2; ++o) CHECK(y.value().data()[o] == doctest::Approx(expected[o]).epsilon(1e-14));
}

TEST_CASE("GatedMlp equals the one of one rank at 2, 3 and 4, with and without SequenceParallel") {
  const auto expected = mlp<Whole<1>>();
  check_same(mlp<Whole<2>>(), expected);
  check_same(mlp<Whole<3>>(), expected);
  check_same(mlp<Whole<4>>(), expected);
  check_same(mlp<Split<2>>(), expected);
  check_same(mlp<Split<3>>(), expected);
  check_same(mlp<Split<4>>(), expected);
}

TEST_CASE("GatedMlp in f32, bf16 and f16 is as close to f64 as its products round, on one rank and on two") {
  constexpr Size width = 96, ffn_width = 256, rows = 128;
  const Global<3> wide = global_normal(shape(2, rows / 2, width), 1),
                  dwide = global_normal(shape(2, rows / 2, width), 2);
  const auto make = []<class P> { return GatedMlp<P>({.width = width, .ffn_width = ffn_width}); };
  // y: gate and up, their product, down; dx: gate and up in forward, the gradients of the product and of both
  // factors, and dx
  const Roundings y{4, width + 20 + ffn_width}, dx{6, 2 * width + 50 + 2 * ffn_width}, parameters{6, dx.sums + rows};
  check_layer_precision(make, wide, dwide, {.y = y, .dx = dx, .parameters = parameters});
  // two ranks: y is a sum of rounded summands; dx too
  check_layer_precision<2>(make, wide, dwide, {.y = {5, y.sums}, .dx = {7, dx.sums}, .parameters = parameters});
}
