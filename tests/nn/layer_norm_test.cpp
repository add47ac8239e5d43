// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/layer_norm.hpp>

#include <laws/layer_precision.hpp>

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

TEST_CASE("LayerNorm in f32, bf16 and f16 is as close to f64 as sums in f32, rounded once, are") {
  const auto check = [](Size rows, Size width) {
    // Far from 0, so that a mean rounded to bf16 would be seen in what is left without it. y: two sums over the
    // features (mean, variance) and ten operations; dx: two more, and ten; dgamma, dbeta: a sum over the rows of what
    // the first two made.
    Global<3> x = global_normal(shape(1, rows, width), 1), dy = global_normal(shape(1, rows, width), 2);
    for (double& value : x.at) value += 8;
    for (double& value : dy.at) value += 8;
    const double features = static_cast<double>(width), sums = 2 * features + static_cast<double>(rows);
    check_layer_precision([width]<class Q> { return LayerNorm<Q>(width); }, x, dy,
                          {.y = {1, 2 * features + 10}, .dx = {1, 4 * features + 20}, .parameters = {1, sums}});
  };
  check(128, 1024);
  check(8, 16384);  // sums of so many that a rounded average of dy would be seen in dx
}
