// SPDX-License-Identifier: Apache-2.0
// labels: models
// Under engines and units: tests/engine/tiled_test.cpp, strategy_tiled_test.cpp.
#include <doctest/doctest.h>

#include <dspp/models/tiled_linear.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F64>;

/// The sum of tiles over inputs and the row of tiles over outputs, from the definition.
void check_values(auto layer, const LinearConfig& c) {
  TestRank here;
  Home<double> home(layer, here);
  Dense<double, 3> x(random<double>(shape(2, 3, c.in), here.pool, 8), here.tape);
  const auto y = layer(x);
  REQUIRE(y.shape() == shape(2, 3, c.out));
  std::vector<double> weight(static_cast<std::size_t>(c.out * c.in)), bias(static_cast<std::size_t>(c.out));
  for (std::size_t i = 0; i < home.entries().size(); ++i) {
    auto& whole = home.entries()[i].name == "weight" ? weight : bias;
    const auto value = home.value(i);
    home.entries()[i].parameter->geometry.for_each_run(0, 0, value.count(), [&](Size local, Size global, Size count) {
      for (Size j = 0; j < count; ++j) whole[static_cast<std::size_t>(global + j)] = value.data()[local + j];
    });
  }
  Worst worst;
  for (Size r = 0; r < 6; ++r)
    for (Size o = 0; o < c.out; ++o) {
      double sum = c.bias ? bias[static_cast<std::size_t>(o)] : 0;
      for (Size i = 0; i < c.in; ++i)
        sum += x.value().data()[r * c.in + i] * weight[static_cast<std::size_t>(o * c.in + i)];
      worst.add(difference(y.value().data()[r * c.out + o], sum));
    }
  CHECK(worst.value() < 1e-14);
}

}  // namespace

TEST_CASE("tiles give the product of the definition, whether their counts divide the extents or not") {
  for (const bool with_bias : {true, false}) {
    const LinearConfig c{.in = 7, .out = 10, .bias = with_bias};
    check_values(TiledLinear<P, 1, 1>(c), c);
    check_values(TiledLinear<P, 3, 4>(c), c);
    check_values(TiledLinear<P, 7, 10>(c), c);
  }
  const LinearConfig groups{.in = 5, .out = 12, .groups = 3};
  check_values(TiledLinear<P, 2, 5>(groups), groups);
}

TEST_CASE("the gradients of tiles equal finite differences") {
  const LinearConfig c{.in = 5, .out = 6};
  check_layer_gradient(TiledLinear<P, 1, 1>(c), shape(2, 3, 5));
  check_layer_gradient(TiledLinear<P, 2, 4>(c), shape(2, 3, 5));
  check_layer_gradient(TiledLinear<P, 5, 1>({.in = 5, .out = 6, .bias = false, .groups = 2}), shape(2, 3, 5));
}

TEST_CASE("a tile differs from another by at most one row and column") {
  TiledLinear<P, 3, 4> layer(7, 10);
  REQUIRE(layer.tiles.size() == 12);
  Size elements = 0;
  for (const auto& tile : layer.tiles) {
    CHECK((tile.rows() == 2 || tile.rows() == 3));
    CHECK((tile.columns() == 2 || tile.columns() == 3));
    elements += tile.rows() * tile.columns();
  }
  CHECK(elements == 70);
}

TEST_CASE("more tiles than inputs or outputs, and an input of another width, are errors") {
  const char* sentence =
      "dspp: Tiled needs an input and an output for every tile, but has more tiles than a rank has inputs or outputs. "
      "Lower In or Out.";
  CHECK_THROWS_WITH_AS((TiledLinear<P, 5, 1>(4, 8)), sentence, Error);
  CHECK_THROWS_WITH_AS((TiledLinear<P, 1, 9>(4, 8)), sentence, Error);
  TestRank here;
  TiledLinear<P, 2, 2> layer(4, 8);
  Home<double> home(layer, here);
  const Dense<double, 3> x(random<double>(shape(1, 2, 5), here.pool, 1), here.tape);
  CHECK_THROWS_WITH_AS(
      layer(x), "dspp: Linear needs 4 features, but its input is [1, 2, 5]. Check the width of the layer before it.",
      Error);
}
