// SPDX-License-Identifier: Apache-2.0
/// Softmax attention in which several query heads share one head of keys and values, without repeating it in memory.
#pragma once

#include <string>

#include <dspp/ops/attention.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_heads(Extents q, Extents kv, Size heads, Size kv_heads);
}  // namespace detail

struct GroupedHeads {
  Size heads = 0;     ///< of queries
  Size kv_heads = 0;  ///< of keys and of values; query head h uses h / (heads / kv_heads)
  AttentionRule rule{};
};

/// y = softmax(scores) v for each query head, the scores as in attention. Keys may be of another sequence than queries
/// under a full mask without a window.
///
///   q [batch, sequence, heads * head_dim]   kv [batch, keys, 2, kv_heads * head_dim]   y like q
///
/// Cost     as attention of `heads` heads. Parallel over (batch, query head).
/// Memory   the results; per thread a scratch of a few tiles, whatever the sequence (cpu/attention.hpp)
/// Throws   Error(shape) unless the extents fit and kv_heads divide heads; Error(usage) as attention
/// Source   Ainslie et al. 2023, GQA, arXiv:2305.13245; with kv_heads = 1: Shazeer 2019, arXiv:1911.02150
template <class T, class D>
constexpr AttentionResult<T, D> grouped_attention(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                  const GroupedHeads& heads, const AttentionExtras<T, D>& extras = {});

template <class T, class D>
struct GroupedAttentionGradients {
  Tensor<T, 3, D> dq;
  Tensor<T, 4, D> dkv;
};

/// The gradients of grouped_attention for q and kv from its results and dy, and that of the bias as in attention_vjp.
///
/// Cost     as attention_vjp of `heads` heads. Parallel over (batch, key and value head), whose query heads are summed
///          in order: the bits depend neither on threads nor on how heads are split over ranks. With a dbias_into
///          parallel over key and value heads.
/// Memory   dq and dkv; for bf16 and f16 also a workspace of dy's count in f32, where dq is accumulated, on a GPU
///          of one number a query and head, and with cuDNN that of its slices (cuda/cudnn.hpp)
/// Throws   Error(shape) when y, log_sum_exp or dy are not of the forward's shapes; Error(usage) as attention
template <class T, class D>
constexpr GroupedAttentionGradients<T, D> grouped_attention_vjp(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                                const Tensor<T, 3, D>& y,
                                                                const Tensor<Compute<T>, 3, D>& log_sum_exp,
                                                                const GroupedHeads& heads, const Tensor<T, 3, D>& dy,
                                                                const AttentionExtras<T, D>& extras = {},
                                                                const Tensor<Compute<T>, 3, D>& dbias_into = {});

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

constexpr kernels::AttentionExtents layout_of(const Shape<3>& q, const Shape<4>& kv, const GroupedHeads& heads,
                                              AttentionKernels by) {
  const bool divides =
      heads.heads > 0 && heads.kv_heads > 0 && heads.heads % heads.kv_heads == 0 && q[2] % heads.heads == 0;
  if (!divides || kv[0] != q[0] || kv[2] != 2 || kv[3] != q[2] / heads.heads * heads.kv_heads)
    fail_of_heads(q, kv, heads.heads, heads.kv_heads);
  require_rule(heads.rule);
  const bool across = kv[1] != q[1], is_plain = heads.rule.mask == AttentionMask::full && heads.rule.window == 0;
  // clang-format off
  require(!across || kv[1] > 0, "dspp: attention to other keys needs at least one key, but there is none. Leave it out.", ErrorCode::shape, {{"queries", q[1]}});
  require(!across || is_plain, "dspp: attention to other keys needs a full mask without a window, but has another rule. Give .mask = AttentionMask::full.",
          ErrorCode::shape, {{"queries", q[1]}, {"keys", kv[1]}});
  // clang-format on
  return {q[0], q[1], heads.heads, heads.kv_heads, q[2] / heads.heads, heads.rule, across ? kv[1] : 0, by};
}

}  // namespace detail

template <class T, class D>
constexpr AttentionResult<T, D> grouped_attention(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                  const GroupedHeads& heads, const AttentionExtras<T, D>& extras) {
  const kernels::AttentionExtents at = detail::layout_of(q.shape(), kv.shape(), heads, extras.by);
  const auto beside = detail::pointers_of(extras, at, "grouped_attention");
  detail::require_takes<kernels::GroupedAttention<T>, D>(at, extras.ranges || extras.bias);
  auto y = Tensor<T, 3, D>::uninitialized(q.shape(), q.memory(), Category::activations, "grouped_attention");
  auto log_sum_exp = Tensor<Compute<T>, 3, D>::uninitialized(dspp::shape(at.batch, at.heads, at.sequence), q.memory(),
                                                             Category::activations, "grouped_attention");
  q.memory().count_flops(2 * at.flops());
  launch<kernels::GroupedAttention<T>, D>(q.memory(), at, beside, q.data(), kv.data(), y.data(), log_sum_exp.data());
  return {y, log_sum_exp};
}

template <class T, class D>
constexpr GroupedAttentionGradients<T, D> grouped_attention_vjp(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                                const Tensor<T, 3, D>& y,
                                                                const Tensor<Compute<T>, 3, D>& log_sum_exp,
                                                                const GroupedHeads& heads, const Tensor<T, 3, D>& dy,
                                                                const AttentionExtras<T, D>& extras,
                                                                const Tensor<Compute<T>, 3, D>& dbias_into) {
  const kernels::AttentionExtents at = detail::layout_of(q.shape(), kv.shape(), heads, extras.by);
  const auto beside = detail::pointers_of(extras, at, "grouped_attention_vjp");
  detail::require_takes<kernels::GroupedAttentionVjp<T>, D>(at, extras.ranges || extras.bias);
  require_same_shape(y.shape(), q.shape(), "grouped_attention_vjp");
  require_same_shape(dy.shape(), q.shape(), "grouped_attention_vjp");
  require_same_shape(log_sum_exp.shape(), dspp::shape(at.batch, at.heads, at.sequence), "grouped_attention_vjp");
  auto dq = Tensor<T, 3, D>::uninitialized(q.shape(), q.memory(), Category::activations, "grouped_attention_vjp");
  auto dkv = Tensor<T, 4, D>::uninitialized(kv.shape(), q.memory(), Category::activations, "grouped_attention_vjp");
  const auto dq_sum = detail::dq_sum_of<kernels::GroupedAttentionVjp<T>, T, D>(at, q.memory(), "grouped_attention_vjp");
  q.memory().count_flops(5 * at.flops());
  const detail::AttentionWorkspaceFor workspace{at, extras.ranges || extras.bias, "grouped_attention_vjp"};
  detail::launch_with_workspace<kernels::GroupedAttentionVjp<T>, D>(
      q.memory(), workspace, at, beside, q.data(), kv.data(), y.data(), log_sum_exp.data(), dy.data(), dq.data(),
      dkv.data(), detail::data_or_null(dq_sum), detail::data_or_null(dbias_into));
  return {dq, dkv};
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_heads(Extents q, Extents kv, Size heads, Size kv_heads) {
  fail(ErrorCode::shape,
       "dspp: grouped_attention needs q [batch, sequence, heads * head_dim], kv [batch, keys, 2, kv_heads * "
       "head_dim] and kv_heads that divide heads, but it got " +
           to_string(q) + ", " + to_string(kv) + ", " + std::to_string(heads) + " heads and " +
           std::to_string(kv_heads) + " of keys and values. Choose heads that fit the extents.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
