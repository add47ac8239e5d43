// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/rms_norm.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {
const Global<3> small_x = global_normal(shape(2, 12, 24), 1), small_dy = global_normal(shape(2, 12, 24), 2);

/// Over the residual stream: whole, or split along the sequence.
template <class P>
auto normalized() {
  using State = typename P::HiddenState;
  return run_layer<P, State, State>([] { return RmsNorm<P>(24); }, call_layer, small_x, small_dy);
}
}  // namespace

TEST_CASE("RmsNorm's gradients are finite differences") {
  using P = Policy<F64>;
  check_layer_gradient(RmsNorm<P>(5), shape(2, 3, 5));
  check_layer_gradient<Dense<double, 2>>(RmsNorm<P>(4, 1e-2), shape(3, 4));
}

TEST_CASE("RmsNorm's weight takes no part in weight decay") {
  CHECK_FALSE(RmsNorm<Policy<>>(4).weight.decays);
}

TEST_CASE("RmsNorm equals the one of one rank at 2, 3 and 4, with and without SequenceParallel") {
  const auto expected = normalized<Whole<1>>();
  check_same(normalized<Whole<2>>(), expected, 1e-300);  // every rank does all of it
  check_same(normalized<Whole<3>>(), expected, 1e-300);
  check_same(normalized<Whole<4>>(), expected, 1e-300);
  check_same(normalized<Split<2>>(), expected);
  check_same(normalized<Split<3>>(), expected);
  check_same(normalized<Split<4>>(), expected);
}

TEST_CASE("RmsNorm in f32, bf16 and f16 is as close to f64 as sums in f32, rounded once, are") {
  const auto check = [](Size rows, Size width) {
    // y: a sum over the features and six operations; dx: one more, and ten; dgamma: a sum over the rows of what the
    // first made. Values around 8, so that a square or an average rounded to bf16 would be seen.
    Global<3> x = global_normal(shape(1, rows, width), 1), dy = global_normal(shape(1, rows, width), 2);
    for (double& value : x.at) value += 8;
    for (double& value : dy.at) value += 8;
    const double features = static_cast<double>(width), sums = features + static_cast<double>(rows);
    check_layer_precision([width]<class Q> { return RmsNorm<Q>(width); }, x, dy,
                          {.y = {1, features + 6}, .dx = {1, 2 * features + 16}, .parameters = {1, sums}});
  };
  check(128, 1024);
  check(8, 16384);
}
