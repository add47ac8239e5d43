// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <vector>

#include <dspp/models/mlp.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("the slices of a cut parameter cover its elements once, and padding follows the last") {
  for (const int ranks : {1, 2, 3, 4})
    for (const int dimension : {0, 1, 2, 3, 4, 5}) {
      const Shape<3> global = dimension < 3 ? shape(5, 7, 3) : shape(1, 1, 1).with((dimension + 1) % 3, 4);
      const Parameter<float, 3, Cpu> p("w", global, Initial::zeros(), Cut{dimension % 3, ranks});
      CHECK(p.shape()[dimension % 3] == (global[dimension % 3] + ranks - 1) / ranks);
      std::vector<int> seen(static_cast<std::size_t>(global.count()));
      for (int r = 0; r < ranks; ++r)
        p.geometry.for_each_run(r, 0, p.count(), [&](Size local, Size first, Size count) {
          CHECK(local + count <= p.count());
          for (Size i = 0; i < count; ++i) ++seen[static_cast<std::size_t>(first + i)];
        });
      for (const int times : seen) CHECK(times == 1);
    }
}

TEST_CASE("the tiles of every rank's slice cover a parameter once, and each keeps its name's site and shape") {
  for (const int ranks : {1, 2, 3, 4})
    for (const int dimension : {-1, 1, 2}) {
      CAPTURE(ranks);
      CAPTURE(dimension);
      const Shape<3> global{{2, 12, 24}};
      const Parameter<float, 3, Cpu> p("w", global, Initial::zeros(), Cut{dimension, ranks});
      const Size rows = p.shape()[0] * p.shape()[1], columns = p.shape()[2];
      std::vector<int> seen(static_cast<std::size_t>(global.count()));
      int number = 0;
      for (const Size row : {Size{0}, rows / 3})  // the second tile of rows begins inside a group
        for (const Size column : {Size{0}, columns / 2}) {
          const auto tile = p.tile_of(number++, row, row == 0 ? rows / 3 : rows - row, column, columns - columns / 2);
          CHECK(tile.global_shape() == global);
          CHECK(tile.count() == tile.shape().count());
          CHECK(tile.geometry.global_count() == global.count());
          for (int r = 0; r < (dimension < 0 ? 1 : ranks); ++r)
            for (Size begin = 0; begin < tile.count(); begin += 7)
              tile.geometry.for_each_run(r, begin, std::min(begin + 7, tile.count()),
                                         [&](Size local, Size first, Size count) {
                                           CHECK((local >= begin && local + count <= begin + 7));
                                           for (Size i = 0; i < count; ++i) ++seen[static_cast<std::size_t>(first + i)];
                                         });
        }
      for (const int times : seen) CHECK(times == 1);
    }
}

TEST_CASE("a tile's elements are those of its rows and columns") {
  const Parameter<float, 2, Cpu> p("w", shape(4, 6), Initial::zeros(), Cut{1, 2});
  std::vector<Size> locals, globals;
  p.tile_of(1, 1, 2, 1, 2).geometry.for_each_run(1, 1, 4, [&](Size local, Size first, Size count) {
    for (Size i = 0; i < count; ++i) locals.push_back(local + i), globals.push_back(first + i);
  });
  CHECK(locals == std::vector<Size>{1, 2, 3});
  CHECK(globals == std::vector<Size>{11, 16, 17});  // of columns 4 and 5 of rows 1 and 2
}

TEST_CASE("a part of a slice has the runs of the slice inside it") {
  const Parameter<float, 2, Cpu> p("w", shape(4, 6), Initial::zeros(), Cut{1, 2});
  std::vector<Size> globals;
  p.geometry.for_each_run(1, 2, 7, [&](Size local, Size first, Size count) {
    CHECK(local >= 2);
    for (Size i = 0; i < count; ++i) globals.push_back(first + i);
  });
  CHECK(globals == std::vector<Size>{5, 9, 10, 11, 15});
}

TEST_CASE("visit() gives parameters their global names, in order of use") {
  TestRank here;
  Mlp<Policy<F64>> mlp({.width = 4, .ffn_width = 8});
  const Home<double> home(mlp, here);
  REQUIRE(home.entries().size() == 4);
  CHECK(home.entries()[0].name == "up.weight");
  CHECK(home.entries()[1].name == "up.bias");
  CHECK(home.entries()[3].name == "down.bias");
}

namespace {
/// The gradient of one parameter of 12 elements, in f32.
struct WideHome : Home<bf16> {
  Tensor<float, 1, Cpu> wide;
  Storage<Pool> storage;
  template <class L>
  WideHome(L& layer, TestRank& here)
      : Home<bf16>(layer, here), wide(Tensor<float, 1>::zeros(shape(12), here.pool)), storage(wide.storage()) {
    wide_gradients = true;
    gradient_storage = [](ParameterStorage<Cpu>& home, const ParameterBase<Cpu>&) -> const Storage<Pool>& {
      return static_cast<WideHome&>(home).storage;
    };
  }
};
}  // namespace

TEST_CASE("bf16 parameters have f32 gradients if their storage is wide") {
  using P = Policy<Bf16>;
  TestRank here;
  Linear<P> layer({.in = 4, .out = 3, .bias = false});
  WideHome home(layer, here);
  for (int use = 0; use < 2; ++use) {
    Dense<bf16, 2> x(random<bf16>(shape(5, 4), here.pool, 8), here.tape);
    const auto y = layer(x);
    here.tape.backward(y.slot(), random<bf16>(shape(5, 3), here.pool, 9));
  }
  const auto a = random<bf16>(shape(5, 4), here.pool, 8), d = random<bf16>(shape(5, 3), here.pool, 9);
  for (Size i = 0; i < 3; ++i)
    for (Size j = 0; j < 4; ++j) {
      double sum = 0;
      for (Size r = 0; r < 5; ++r)
        sum += 2 * static_cast<double>(d.data()[r * 3 + i]) * static_cast<double>(a.data()[r * 4 + j]);
      CHECK(std::abs(home.wide.data()[i * 4 + j] - sum) < 200 * rounding<float>);  // ten products up to 16
    }
}
