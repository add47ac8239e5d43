// SPDX-License-Identifier: Apache-2.0
// labels: models
#include <doctest/doctest.h>

#include <dspp/models/llama.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr LlamaConfig config{.width = 96, .heads = 4, .kv_heads = 2, .ffn_width = 256};

/// The names of a model's parameters, in visit order.
struct Names {
  std::vector<std::string> all;
  void parameter(const Path& path, auto&) { all.push_back(path.text()); }
  void site(const Path&, RandomSite&) {}
  void begin_unit(const Path&, auto&) {}
  void end_unit(auto&) {}
};

template <class Model>
std::vector<std::string> names(Model model) {
  Names names;
  walk(model, names);
  return names.all;
}

}  // namespace

TEST_CASE("a LlamaBlock's gradients equal finite differences") {
  using P = Policy<F64>;
  check_layer_gradient<Hidden<P>>(LlamaBlock<P>({.width = 4, .heads = 2, .kv_heads = 1, .ffn_width = 6}),
                                  shape(1, 3, 4));
}

TEST_CASE("a LlamaBlock in f32, bf16 and f16 is as close to f64 as its layers round, on one rank and on two") {
  constexpr Size sequence = 64, width = 96, ffn_width = 256, rows = 2 * sequence;
  const Global<3> x = global_normal(shape(2, sequence, width), 1), dy = global_normal(shape(2, sequence, width), 2);
  const auto make = []<class P> { return LlamaBlock<P>(config); };
  // y: norm, projections, rotation, heads, projection, sum; norm, gate and up, their product, down, sum. Back the same
  // eleven and the sum of the projections' dx, after the eleven of forward. On two ranks each sub-layer's output rounds
  // once more, and its dx too.
  constexpr double sums = 2 * (width + 6) + (2 * width + 2 * sequence + 30) + (width + 20 + ffn_width);
  const Roundings parameters{23, 3 * sums + rows};
  check_layer_precision(make, x, dy, {.y = {11, sums}, .dx = {23, 3 * sums}, .parameters = parameters});
  check_layer_precision<2>(make, x, dy, {.y = {13, sums}, .dx = {27, 3 * sums}, .parameters = {27, parameters.sums}});
}

TEST_CASE("a Llama's parameters have names, and a tied head has no parameter") {
  using P = Policy<F32>;
  constexpr LlamaConfig one{.layers = 1, .width = 8, .heads = 2, .ffn_width = 8, .vocabulary = 16};
  const std::vector<std::string> untied = {"tokens.weight",
                                           "blocks.0.norm1.weight",
                                           "blocks.0.attention.q.weight",
                                           "blocks.0.attention.kv.weight",
                                           "blocks.0.attention.output.weight",
                                           "blocks.0.norm2.weight",
                                           "blocks.0.mlp.gate_up.weight",
                                           "blocks.0.mlp.down.weight",
                                           "norm.weight",
                                           "head.weight"};
  CHECK(names(Llama<P>(one)) == untied);
  const std::vector<std::string> tied(untied.begin(), untied.end() - 1);
  CHECK(names(Llama<P, LlamaBlock<P>, TiedHead<P>>(one)) == tied);
}

TEST_CASE("a Llama's feed-forward width follows its width unless it is given") {
  static_assert(LlamaConfig{.width = 4096}.effective_ffn_width() == 10944);
  static_assert(LlamaConfig{.width = 24}.effective_ffn_width() == 64);
  static_assert(LlamaConfig{.width = 24, .ffn_width = 60}.effective_ffn_width() == 60);
  CHECK_THROWS_WITH_AS(Llama<Policy<>>(LlamaConfig{.layers = 0}),
                       "dspp: Llama needs at least one layer, but got none. Raise layers.", Error);
}
