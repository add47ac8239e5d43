// SPDX-License-Identifier: Apache-2.0
/// The matrix products of one training step of a GPT; their time is its GEMM limit.
#pragma once

#include <string>
#include <vector>

#include <dspp/ops/cpu/gemm/product.hpp>

namespace dspp::bench {

struct GptExtents {
  Size layers = 6, width = 384, heads = 6, sequence = 256, batch = 8, vocabulary = 256;
  constexpr Size tokens() const { return batch * sequence; }
};

/// A product and its count per step.
struct StepProduct {
  std::string name;
  cpu::Product product;
  Size times = 1;
  double flops() const {
    return 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
  }
};

/// x W^T, dy W and dy^T x of a linear layer of weight [out, in].
inline void add_linear(std::vector<StepProduct>& list, const std::string& name, Size rows, Size in, Size out,
                       Size times) {
  using enum Transpose;
  list.push_back({name + " forward", {rows, out, in, no, yes, in, in, out}, times});
  list.push_back({name + " dx", {rows, in, out, no, no, out, in, in}, times});
  list.push_back({name + " dw", {out, in, rows, yes, no, out, in, in}, times});
}

/// All products of a step, attention's without the causal mask: two forward and four backward per head.
inline std::vector<StepProduct> step_products(const GptExtents& e) {
  using enum Transpose;
  std::vector<StepProduct> list;
  add_linear(list, "qkv", e.tokens(), e.width, 3 * e.width, e.layers);
  add_linear(list, "projection", e.tokens(), e.width, e.width, e.layers);
  add_linear(list, "up", e.tokens(), e.width, 4 * e.width, e.layers);
  add_linear(list, "down", e.tokens(), 4 * e.width, e.width, e.layers);
  add_linear(list, "head", e.tokens(), e.width, e.vocabulary, 1);
  const Size s = e.sequence, d = e.width / e.heads, per_step = e.layers * e.heads * e.batch;
  list.push_back({"attention scores", {s, s, d, no, yes, d, d, s}, 2 * per_step});  // q k^T, dy v^T
  list.push_back({"attention values", {s, d, s, no, no, s, d, d}, 2 * per_step});   // p v, ds k
  list.push_back({"attention dk dv", {s, d, s, yes, no, s, d, d}, 2 * per_step});   // p^T dy, ds^T q
  return list;
}

}  // namespace dspp::bench
