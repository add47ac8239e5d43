// SPDX-License-Identifier: Apache-2.0
/// Softmax attention of local tensors with fused queries, keys and values, computed in tiles.
#pragma once

#include <string>

#include <dspp/ops/cpu/attention.hpp>
#include <dspp/ops/cpu/require.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/workspace.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_heads(Extents qkv, Size heads);
}  // namespace detail

template <class T, class D>
struct AttentionResult {
  Tensor<T, 3, D> y;                     ///< [batch, sequence, heads * head_dim]
  Tensor<Compute<T>, 3, D> log_sum_exp;  ///< [batch, heads, sequence]: all that backward keeps of the softmax
};

/// What attention takes beside its rule, each unset if there is none.
template <class T, class D>
struct AttentionExtras {
  Tensor<std::int32_t, 3, D> ranges;  ///< [batch, sequence, 2]: of key_ranges
  Tensor<T, 3, D> bias;               ///< [heads, sequence, keys], added to the scores of every sample
  AttentionKernels by = AttentionKernels::fastest;
};

/// The keys [first, end) that lengths [batch] and documents [batch, sequence] leave to each query: those before the
/// length of its sample, and of its own document, whose adjacent equal ids are one. Either may be unset; documents must
/// be where the keys are of another sequence than the queries.
///
/// Memory   [batch, sequence, 2] numbers of 32 bits
/// Throws   Error(shape); Error(usage) for a length outside [0, keys], now or when the host next synchronizes
template <class D>
constexpr Tensor<std::int32_t, 3, D> key_ranges(Size batch, Size sequence, Size keys,
                                                const Tensor<std::int32_t, 1, D>& lengths,
                                                const Tensor<std::int32_t, 2, D>& documents, Memory<D>& memory);

/// y = softmax(scores) v for each head of qkv [batch, sequence, 3, heads * head_dim]. The scores are q k^T /
/// sqrt(head_dim), or what the rule and the extras say, over the keys that they leave. A query without keys gives 0.
///
/// Cost     4 batch heads sequence^2 head_dim operations; causal, half of that; of a window, those within it. What
///          lengths and documents leave out is counted, but tiles without a pair are not computed. Parallel over
///          (batch, head).
/// Memory   the results; per thread a scratch of a few tiles, whatever the sequence (cpu/attention.hpp)
/// Throws   Error(shape) unless qkv[2] is 3 and heads divide its last extent; Error(usage) for extras.by cudnn on a GPU
///          where cuDNN does not take it
/// Source   Vaswani et al. 2017, section 3.2; Dao et al. 2022, FlashAttention
template <class T, class D>
constexpr AttentionResult<T, D> attention(const Tensor<T, 4, D>& qkv, Size heads, const AttentionRule& rule,
                                          const AttentionExtras<T, D>& extras = {});

/// The gradient of attention for qkv from its results and dy. dqkv is three times as large as dy, so never in place.
/// That of the bias is added to dbias_into, [heads, sequence, sequence], if it is set.
///
/// Cost     10 batch heads sequence^2 head_dim operations, less by the rule as forward. With a dbias_into parallel over
///          heads.
/// Memory   dqkv; for bf16 and f16 also a workspace of dy's count in f32, where dq is accumulated, on a GPU of one
///          number a query and head, and with cuDNN that of its slices (cuda/cudnn.hpp)
/// Throws   Error(shape) when y, log_sum_exp or dy are not of the forward's shapes; Error(usage) as attention
template <class T, class D>
constexpr Tensor<T, 4, D> attention_vjp(const Tensor<T, 4, D>& qkv, const Tensor<T, 3, D>& y,
                                        const Tensor<Compute<T>, 3, D>& log_sum_exp, Size heads,
                                        const AttentionRule& rule, Tensor<T, 3, D> dy,
                                        const AttentionExtras<T, D>& extras = {},
                                        const Tensor<Compute<T>, 3, D>& dbias_into = {});

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

constexpr void require_rule(const AttentionRule& rule) {
  // clang-format off
  constexpr double most = 1e30;  // within f32, as its inverse is
  const auto fits = [](double value) { return value == 0 || (value >= 1 / most && value <= most); };
  require(rule.window >= 0 && fits(rule.softcap) && fits(rule.scale), "dspp: attention needs a window of at least 0, a softcap and a scale from 1e-30 to 1e30, but one is not. Give 0 for the usual.",
          ErrorCode::usage, {{"window", rule.window}});
  // clang-format on
}

constexpr kernels::AttentionExtents layout_of(const Shape<4>& qkv, Size heads, const AttentionRule& rule,
                                              AttentionKernels by) {
  if (qkv[2] != 3 || heads < 1 || qkv[3] % heads != 0) fail_of_heads(qkv, heads);
  require_rule(rule);
  return {qkv[0], qkv[1], heads, heads, qkv[3] / heads, rule, 0, by};
}

/// Throws, on paper as on the device, what the device's kernel says of an attention that it does not take.
template <class Name, Device D>
constexpr void require_takes(const kernels::AttentionExtents& at, bool has_extras) {
  if constexpr (requires { PlannedKernel<Name, D>::require_takes(at, has_extras); })
    PlannedKernel<Name, D>::require_takes(at, has_extras);
}

template <class T, class D>
constexpr kernels::AttentionExtras<T> pointers_of(const AttentionExtras<T, D>& extras,
                                                  const kernels::AttentionExtents& at, const char* who) {
  if (extras.ranges) require_same_shape(extras.ranges.shape(), dspp::shape(at.batch, at.sequence, Size{2}), who);
  if (extras.bias) require_same_shape(extras.bias.shape(), dspp::shape(at.heads, at.sequence, at.keys()), who);
  return {data_or_null(extras.ranges), data_or_null(extras.bias)};
}

/// dq_sum of an attention whose T is narrower than C, else unset: head_dim columns, or as many as the device's kernel
/// says.
template <class Name, class T, class D, class C = Compute<T>>
constexpr Tensor<C, 4, D> dq_sum_of(const kernels::AttentionExtents& at, Memory<D>& memory, const char* who) {
  if constexpr (std::is_same_v<T, C>) {
    return {};
  } else {
    Size columns = at.head_dim;
    if constexpr (requires { PlannedKernel<Name, D>::dq_sum_columns; })
      columns = PlannedKernel<Name, D>::dq_sum_columns;
    return Tensor<C, 4, D>::uninitialized(dspp::shape(at.batch, at.heads, at.sequence, columns), memory,
                                          Category::workspace, who);
  }
}

}  // namespace detail

template <class D>
constexpr Tensor<std::int32_t, 3, D> key_ranges(Size batch, Size sequence, Size keys,
                                                const Tensor<std::int32_t, 1, D>& lengths,
                                                const Tensor<std::int32_t, 2, D>& documents, Memory<D>& memory) {
  if (lengths) {
    detail::require_length(lengths[0], batch, "attention", "lengths");
    launch<kernels::RequireLengths, D>(memory, batch, static_cast<const std::int32_t*>(lengths.data()), keys,
                                       "attention");
  }
  if (documents) {
    require_same_shape(documents.shape(), dspp::shape(batch, sequence), "attention");
    // clang-format off
    require(keys == sequence, "dspp: attention by documents needs queries and keys of one sequence, but these have different lengths. Give Lengths of the keys.", ErrorCode::shape,
            {{"queries", sequence}, {"keys", keys}});
    // clang-format on
  }
  auto ranges = Tensor<std::int32_t, 3, D>::uninitialized(dspp::shape(batch, sequence, Size{2}), memory,
                                                          Category::activations, "attention");
  launch<kernels::KeyRanges, D>(memory, batch, sequence, keys,
                                static_cast<const std::int32_t*>(detail::data_or_null(lengths)),
                                static_cast<const std::int32_t*>(detail::data_or_null(documents)), ranges.data());
  return ranges;
}

template <class T, class D>
constexpr AttentionResult<T, D> attention(const Tensor<T, 4, D>& qkv, Size heads, const AttentionRule& rule,
                                          const AttentionExtras<T, D>& extras) {
  const kernels::AttentionExtents at = detail::layout_of(qkv.shape(), heads, rule, extras.by);
  const auto beside = detail::pointers_of(extras, at, "attention");
  detail::require_takes<kernels::Attention<T>, D>(at, extras.ranges || extras.bias);
  auto y = Tensor<T, 3, D>::uninitialized(dspp::shape(at.batch, at.sequence, at.width()), qkv.memory(),
                                          Category::activations, "attention");
  auto log_sum_exp = Tensor<Compute<T>, 3, D>::uninitialized(dspp::shape(at.batch, at.heads, at.sequence), qkv.memory(),
                                                             Category::activations, "attention");
  qkv.memory().count_flops(2 * at.flops());
  launch<kernels::Attention<T>, D>(qkv.memory(), at, beside, qkv.data(), y.data(), log_sum_exp.data());
  return {y, log_sum_exp};
}

template <class T, class D>
constexpr Tensor<T, 4, D> attention_vjp(const Tensor<T, 4, D>& qkv, const Tensor<T, 3, D>& y,
                                        const Tensor<Compute<T>, 3, D>& log_sum_exp, Size heads,
                                        const AttentionRule& rule, Tensor<T, 3, D> dy,
                                        const AttentionExtras<T, D>& extras,
                                        const Tensor<Compute<T>, 3, D>& dbias_into) {
  const kernels::AttentionExtents at = detail::layout_of(qkv.shape(), heads, rule, extras.by);
  const auto beside = detail::pointers_of(extras, at, "attention_vjp");
  detail::require_takes<kernels::AttentionVjp<T>, D>(at, extras.ranges || extras.bias);
  const auto forward = dspp::shape(at.batch, at.sequence, at.width());
  require_same_shape(y.shape(), forward, "attention_vjp");
  require_same_shape(dy.shape(), forward, "attention_vjp");
  require_same_shape(log_sum_exp.shape(), dspp::shape(at.batch, at.heads, at.sequence), "attention_vjp");
  auto dqkv = Tensor<T, 4, D>::uninitialized(qkv.shape(), qkv.memory(), Category::activations, "attention_vjp");
  const auto dq_sum = detail::dq_sum_of<kernels::AttentionVjp<T>, T, D>(at, qkv.memory(), "attention_vjp");
  qkv.memory().count_flops(5 * at.flops());
  const detail::AttentionWorkspaceFor workspace{at, extras.ranges || extras.bias, "attention_vjp"};
  detail::launch_with_workspace<kernels::AttentionVjp<T>, D>(
      qkv.memory(), workspace, at, beside, qkv.data(), y.data(), log_sum_exp.data(), dy.data(), dqkv.data(),
      detail::data_or_null(dq_sum), detail::data_or_null(dbias_into));
  return dqkv;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_heads(Extents qkv, Size heads) {
  fail(ErrorCode::shape,
       "dspp: attention needs [batch, sequence, 3, heads * head_dim] and a number of heads that divides the last "
       "extent, but it got " +
           to_string(qkv) + " and " + std::to_string(heads) + " heads. Choose heads that divide the width.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
