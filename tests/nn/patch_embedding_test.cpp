// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/patch_embedding.hpp>

#include <laws/parallel_layer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {
using X4 = Dense<double, 4>;

PatchEmbedding<Policy<F64>> layer_of(Size channels, Size patch, bool bias) {
  return PatchEmbedding<Policy<F64>>({.channels = channels, .patch = patch, .width = 5, .bias = bias});
}
}  // namespace

TEST_CASE("a patch embedding is the convolution whose stride is its kernel") {
  for (const auto& extents : {shape(2, 3, 4, 8), shape(1, 1, 6, 2), shape(3, 2, 3, 3), shape(0, 3, 4, 4)})
    for (const Size p : {Size{1}, Size{2}, Size{3}}) {
      if (extents[2] % p != 0 || extents[3] % p != 0) continue;
      for (const bool bias : {true, false}) {
        CAPTURE(to_string(extents));
        TestRank here;
        auto layer = layer_of(extents[1], p, bias);
        Home<double> home(layer, here);
        const auto value = random<double>(extents, here.pool, 8);
        const auto off = here.tape.rehearse();
        const auto y = layer(X4(value, here.tape));
        const Size down = extents[2] / p, across = extents[3] / p;
        REQUIRE(y.shape() == shape(extents[0], down * across, 5));
        const auto w = home.value(0);
        for (Size b = 0; b < extents[0]; ++b)
          for (Size i = 0; i < down; ++i)
            for (Size j = 0; j < across; ++j)
              for (Size o = 0; o < 5; ++o) {
                double sum = bias ? home.value(1).data()[o] : 0;
                for (Size c = 0; c < extents[1]; ++c)
                  for (Size u = 0; u < p; ++u)
                    for (Size v = 0; v < p; ++v)
                      sum += w.data()[((o * extents[1] + c) * p + u) * p + v] *
                             value.data()[((b * extents[1] + c) * extents[2] + i * p + u) * extents[3] + j * p + v];
                CHECK(std::abs(y.value().data()[((b * down + i) * across + j) * 5 + o] - sum) < 1e-13);
              }
      }
    }
}

TEST_CASE("the gradients of images, weight and bias are finite differences") {
  check_layer_gradient<X4>(layer_of(3, 2, true), shape(2, 3, 4, 6));
  check_layer_gradient<X4>(layer_of(1, 3, false), shape(2, 1, 3, 6));
}

TEST_CASE("images without a gradient take none, and the layer's parameters do") {
  TestRank here;
  auto layer = layer_of(2, 2, true);
  Home<double> home(layer, here);
  const auto y = layer(X4::constant(random<double>(shape(2, 2, 4, 4), here.pool, 8), here.tape));
  const Size before = here.pool.peak();
  here.tape.backward(y.slot(), random<double>(y.shape(), here.pool, 9));
  CHECK(home.finished_reports() == 2);
  CHECK(here.pool.peak() - before <= y.value().bytes() + 64);  // dy, and no dx
}

TEST_CASE("images that the patch does not divide, and other channels, are errors that name them") {
  TestRank here;
  auto layer = layer_of(3, 4, true);
  Home<double> home(layer, here);
  const auto off = here.tape.rehearse();
  const auto of = [&](const Shape<4>& extents) { layer(X4(Tensor<double, 4>::zeros(extents, here.pool), here.tape)); };
  CHECK_THROWS_WITH_AS(of(shape(1, 3, 8, 6)),
                       "dspp: PatchEmbedding needs images of 3 channels and extents that 4 divides, but they are "
                       "[1, 3, 8, 6]. Crop them, or change the layer.",
                       Error);
  CHECK_THROWS_AS(of(shape(1, 1, 8, 8)), Error);
}
