// SPDX-License-Identifier: Apache-2.0
/// The Llama of the strategy tests.
#pragma once

#include <dspp/models/llama.hpp>
#include <dspp/models/recompute.hpp>

#include <laws/strategy.hpp>
#include <laws/tensor_traffic.hpp>

namespace dspp::laws {

/// Two query heads per head of keys and values, whose number 1, 2, 3 and 4 ranks divide; a vocabulary that 2, 3 and 4
/// do not divide.
template <>
constexpr LlamaConfig small_config<LlamaConfig>(double) {
  return {.layers = 2, .width = 24, .heads = 24, .kv_heads = 12, .head_dim = 2, .ffn_width = 48, .vocabulary = 61};
}

template <class P>
using RecomputedLlama = Llama<P, Recompute<LlamaBlock<P>>>;
template <class P>
using TiedLlama = Llama<P, LlamaBlock<P>, TiedHead<P>>;

/// Elements whole on every rank of a Llama: norms.
constexpr TensorSizes sizes_of(const LlamaConfig& c) {
  return {c.layers, c.width, (2 * c.layers + 1) * c.width};
}

}  // namespace dspp::laws
