// SPDX-License-Identifier: Apache-2.0
// labels: models
#include <doctest/doctest.h>

#include <dspp/models/gpt.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {
constexpr GptConfig config{.width = 96, .heads = 2, .dropout = 0.1};
}

TEST_CASE("a GptBlock in f32, bf16 and f16 is as close to f64 as its layers round, on one rank and on two") {
  constexpr Size sequence = 64, width = 96, ffn_width = 384, rows = 2 * sequence;
  const Global<3> x = global_normal(shape(2, sequence, width), 1), dy = global_normal(shape(2, sequence, width), 2);
  const auto make = []<class P> { return GptBlock<P>(config); };
  // y: norm, qkv, heads, projection, dropout, sum; norm, up, gelu, down, dropout, sum. Back the same twelve again,
  // after the twelve of forward. On two ranks each sub-layer's output rounds twice more, and its dx once more.
  constexpr double sums = 2 * (2 * width + 10) + (2 * width + 2 * sequence + 20) + (width + 20 + ffn_width);
  const Roundings parameters{24, 3 * sums + rows};
  check_layer_precision(make, x, dy, {.y = {12, sums}, .dx = {24, 3 * sums}, .parameters = parameters});
  check_layer_precision<2>(make, x, dy, {.y = {16, sums}, .dx = {30, 3 * sums}, .parameters = {30, parameters.sums}});
}
