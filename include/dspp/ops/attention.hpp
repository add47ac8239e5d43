// SPDX-License-Identifier: Apache-2.0
/// Softmax attention of local tensors with fused queries, keys and values, computed in tiles.
#pragma once

#include <string>

#include <dspp/ops/cpu/attention.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

template <class T, class D>
struct AttentionResult {
  Tensor<T, 3, D> y;                     ///< [batch, sequence, heads * head_dim]
  Tensor<Compute<T>, 3, D> log_sum_exp;  ///< [batch, heads, sequence]: all that backward keeps of the softmax
};

/// y = softmax(q k^T / sqrt(head_dim) + mask) v for each head of qkv [batch, sequence, 3, heads * head_dim].
///
/// Cost     4 batch heads sequence^2 head_dim operations; causal, half of that. Parallel over (batch, head).
/// Memory   the results; per thread a scratch of a few tiles, whatever the sequence (cpu/attention.hpp)
/// Throws   Error(shape) unless qkv[2] is 3 and heads divide its last extent
/// Source   Vaswani et al. 2017, section 3.2; Dao et al. 2022, FlashAttention
template <class T, class D>
constexpr AttentionResult<T, D> attention(const Tensor<T, 4, D>& qkv, Size heads, AttentionMask mask);

/// The gradient of attention for qkv from its results and dy. dqkv is three times as large as dy, so never in place.
///
/// Cost     10 batch heads sequence^2 head_dim operations; causal, half of that
/// Memory   dqkv; for bf16 and f16 also a workspace of dy's count in f32, where dq is accumulated
/// Throws   Error(shape) when y, log_sum_exp or dy are not of the forward's shapes
template <class T, class D>
constexpr Tensor<T, 4, D> attention_vjp(const Tensor<T, 4, D>& qkv, const Tensor<T, 3, D>& y,
                                        const Tensor<Compute<T>, 3, D>& log_sum_exp, Size heads, AttentionMask mask,
                                        Tensor<T, 3, D> dy);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

constexpr kernels::AttentionExtents layout_of(const Shape<4>& qkv, Size heads, AttentionMask mask) {
  if (qkv[2] != 3 || heads < 1 || qkv[3] % heads != 0)
    fail(ErrorCode::shape,
         "dspp: attention needs [batch, sequence, 3, heads * head_dim] and a number of heads that divides the last "
         "extent, but it got " +
             to_string(qkv) + " and " + std::to_string(heads) + " heads. Choose heads that divide the width.");
  return {qkv[0], qkv[1], heads, heads, qkv[3] / heads, mask};
}

}  // namespace detail

template <class T, class D>
constexpr AttentionResult<T, D> attention(const Tensor<T, 4, D>& qkv, Size heads, AttentionMask mask) {
  const kernels::AttentionExtents at = detail::layout_of(qkv.shape(), heads, mask);
  auto y = Tensor<T, 3, D>::uninitialized(dspp::shape(at.batch, at.sequence, at.width()), qkv.memory(),
                                          Category::activations, "attention");
  auto log_sum_exp = Tensor<Compute<T>, 3, D>::uninitialized(dspp::shape(at.batch, at.heads, at.sequence), qkv.memory(),
                                                             Category::activations, "attention");
  qkv.memory().count_flops(2 * at.flops());
  launch<kernels::Attention<T>, D>(qkv.memory(), at, qkv.data(), y.data(), log_sum_exp.data());
  return {y, log_sum_exp};
}

template <class T, class D>
constexpr Tensor<T, 4, D> attention_vjp(const Tensor<T, 4, D>& qkv, const Tensor<T, 3, D>& y,
                                        const Tensor<Compute<T>, 3, D>& log_sum_exp, Size heads, AttentionMask mask,
                                        Tensor<T, 3, D> dy) {
  using C = Compute<T>;
  const kernels::AttentionExtents at = detail::layout_of(qkv.shape(), heads, mask);
  const auto forward = dspp::shape(at.batch, at.sequence, at.width());
  require_same_shape(y.shape(), forward, "attention_vjp");
  require_same_shape(dy.shape(), forward, "attention_vjp");
  require_same_shape(log_sum_exp.shape(), dspp::shape(at.batch, at.heads, at.sequence), "attention_vjp");
  auto dqkv = Tensor<T, 4, D>::uninitialized(qkv.shape(), qkv.memory(), Category::activations, "attention_vjp");
  Tensor<C, 4, D> dq_sum;  // [batch, heads, sequence, head_dim], where dqkv cannot hold sums
  if constexpr (!std::is_same_v<T, C>)
    dq_sum = Tensor<C, 4, D>::uninitialized(dspp::shape(at.batch, at.heads, at.sequence, at.head_dim), qkv.memory(),
                                            Category::workspace, "attention_vjp");
  qkv.memory().count_flops(5 * at.flops());
  launch<kernels::AttentionVjp<T>, D>(qkv.memory(), at, qkv.data(), y.data(), log_sum_exp.data(), dy.data(),
                                      dqkv.data(), detail::data_or_null(dq_sum));
  return dqkv;
}

}  // namespace dspp::ops
