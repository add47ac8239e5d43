// SPDX-License-Identifier: Apache-2.0
/// Softmax attention in which several query heads share one head of keys and values, which is never repeated in memory.
#pragma once

#include <string>

#include <dspp/ops/attention.hpp>

namespace dspp::ops {

struct GroupedHeads {
  Size heads = 0;     ///< of queries
  Size kv_heads = 0;  ///< of keys and of values; query head h uses h / (heads / kv_heads)
  AttentionMask mask = AttentionMask::causal;
};

/// y = softmax(q k^T / sqrt(head_dim) + mask) v for each query head.
///
///   q [batch, sequence, heads * head_dim]   kv [batch, sequence, 2, kv_heads * head_dim]   y like q
///
/// Cost     as attention of `heads` heads. Parallel over (batch, query head).
/// Memory   the results; per thread a scratch of a few tiles, whatever the sequence (cpu/attention.hpp)
/// Throws   Error(shape) unless the extents fit and kv_heads divide heads
/// Source   Ainslie et al. 2023, GQA, arXiv:2305.13245; with kv_heads = 1: Shazeer 2019, arXiv:1911.02150
template <class T, class D>
constexpr AttentionResult<T, D> grouped_attention(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                  const GroupedHeads& heads);

template <class T, class D>
struct GroupedAttentionGradients {
  Tensor<T, 3, D> dq;
  Tensor<T, 4, D> dkv;
};

/// The gradients of grouped_attention for q and kv from its results and dy.
///
/// Cost     as attention_vjp of `heads` heads. Parallel over (batch, key and value head), whose query heads are summed
///          in order: the bits depend neither on threads nor on how heads are dealt out to ranks.
/// Memory   dq and dkv; for bf16 and f16 also a workspace of dy's count in f32, where dq is accumulated
/// Throws   Error(shape) when y, log_sum_exp or dy are not of the forward's shapes
template <class T, class D>
constexpr GroupedAttentionGradients<T, D> grouped_attention_vjp(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                                const Tensor<T, 3, D>& y,
                                                                const Tensor<Compute<T>, 3, D>& log_sum_exp,
                                                                const GroupedHeads& heads, const Tensor<T, 3, D>& dy);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Where a head is: queries and results in [batch, sequence, heads, head_dim], keys and values in kv.
struct GroupedLayout {
  AttentionLayout queries;
  Size kv_heads = 0;

  constexpr Size group() const { return queries.heads / kv_heads; }
  /// Columns of one token's keys, or values.
  constexpr Size kv_width() const { return kv_heads * queries.head_dim; }
  /// Of head i of batch * kv_heads; part 0, 1 of kv is k, v.
  template <class T>
  cpu::HeadRows<T> key_value(T* kv, Size i, int part) const {
    const Size head = i % kv_heads * queries.head_dim;
    return {kv + i / kv_heads * queries.sequence * 2 * kv_width() + part * kv_width() + head, 2 * kv_width()};
  }
};

constexpr GroupedLayout layout_of(const Shape<3>& q, const Shape<4>& kv, const GroupedHeads& heads) {
  const bool divides =
      heads.heads > 0 && heads.kv_heads > 0 && heads.heads % heads.kv_heads == 0 && q[2] % heads.heads == 0;
  if (!divides || kv[0] != q[0] || kv[1] != q[1] || kv[2] != 2 || kv[3] != q[2] / heads.heads * heads.kv_heads)
    fail(ErrorCode::shape,
         "dspp: grouped_attention needs q [batch, sequence, heads * head_dim], kv [batch, sequence, 2, kv_heads * "
         "head_dim] and kv_heads that divide heads, but it got " +
             to_string(q) + ", " + to_string(kv) + ", " + std::to_string(heads.heads) + " heads and " +
             std::to_string(heads.kv_heads) + " of keys and values. Choose heads that fit the extents.");
  return {{q[0], q[1], heads.heads, q[2] / heads.heads, heads.mask}, heads.kv_heads};
}

}  // namespace detail

template <class T, class D>
constexpr AttentionResult<T, D> grouped_attention(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                  const GroupedHeads& heads) {
  const detail::GroupedLayout at = detail::layout_of(q.shape(), kv.shape(), heads);
  const detail::AttentionLayout& queries = at.queries;
  auto y = Tensor<T, 3, D>::uninitialized(q.shape(), q.memory(), Category::activations, "grouped_attention");
  auto log_sum_exp =
      Tensor<Compute<T>, 3, D>::uninitialized(dspp::shape(queries.batch, queries.heads, queries.sequence), q.memory(),
                                              Category::activations, "grouped_attention");
  q.memory().count_flops(2 * queries.flops());
  if constexpr (D::real)
    cpu::parallel_for(queries.batch * queries.heads, 1, [&](Size i, Size) {
      const cpu::OneThread inside_providers;
      const T *q_data = q.data(), *kv_data = kv.data();
      const Size shared = i / at.group();
      cpu::attention_head<T>(queries.head(), queries.plain(q_data, i), at.key_value(kv_data, shared, 0),
                             at.key_value(kv_data, shared, 1), queries.plain(y.data(), i),
                             log_sum_exp.data() + i * queries.sequence);
    });
  return {y, log_sum_exp};
}

template <class T, class D>
constexpr GroupedAttentionGradients<T, D> grouped_attention_vjp(const Tensor<T, 3, D>& q, const Tensor<T, 4, D>& kv,
                                                                const Tensor<T, 3, D>& y,
                                                                const Tensor<Compute<T>, 3, D>& log_sum_exp,
                                                                const GroupedHeads& heads, const Tensor<T, 3, D>& dy) {
  using C = Compute<T>;
  constexpr bool converts = !std::is_same_v<T, C>;
  const detail::GroupedLayout at = detail::layout_of(q.shape(), kv.shape(), heads);
  const detail::AttentionLayout& queries = at.queries;
  const Size sequence = queries.sequence, head_dim = queries.head_dim;
  require_same_shape(y.shape(), q.shape(), "grouped_attention_vjp");
  require_same_shape(dy.shape(), q.shape(), "grouped_attention_vjp");
  require_same_shape(log_sum_exp.shape(), dspp::shape(queries.batch, queries.heads, sequence), "grouped_attention_vjp");
  auto dq = Tensor<T, 3, D>::uninitialized(q.shape(), q.memory(), Category::activations, "grouped_attention_vjp");
  auto dkv = Tensor<T, 4, D>::uninitialized(kv.shape(), q.memory(), Category::activations, "grouped_attention_vjp");
  Tensor<C, 4, D> dq_sum;  // [batch, heads, sequence, head_dim], where dq cannot hold sums
  if constexpr (converts)
    dq_sum = Tensor<C, 4, D>::uninitialized(dspp::shape(queries.batch, queries.heads, sequence, head_dim), q.memory(),
                                            Category::workspace, "grouped_attention_vjp");
  q.memory().count_flops(5 * queries.flops());
  if constexpr (D::real)
    cpu::parallel_for(queries.batch * at.kv_heads, 1, [&](Size i, Size) {
      const cpu::OneThread inside_providers;
      const T *q_data = q.data(), *kv_data = kv.data(), *results = y.data(), *upstream = dy.data();
      const Size first = i * at.group();  // of the query heads of this group
      cpu::HeadRows<C> sums;
      if constexpr (converts)
        sums = {dq_sum.data() + first * sequence * head_dim, head_dim};
      else
        sums = queries.plain(dq.data(), first);
      cpu::attention_head_vjp<T>(queries.head(), {.q = queries.plain(q_data, first),
                                                  .k = at.key_value(kv_data, i, 0),
                                                  .v = at.key_value(kv_data, i, 1),
                                                  .y = queries.plain(results, first),
                                                  .dy = queries.plain(upstream, first),
                                                  .log_sum_exp = log_sum_exp.data() + first * sequence,
                                                  .dq = sums,
                                                  .dk = at.key_value(dkv.data(), i, 0),
                                                  .dv = at.key_value(dkv.data(), i, 1),
                                                  .query_heads = at.group(),
                                                  .dq_step = converts ? sequence * head_dim : head_dim});
      if constexpr (converts)
        for (Size h = first; h < first + at.group(); ++h)
          for (Size row = 0; row < sequence; ++row)
            cpu::convert_row(dq_sum.data() + (h * sequence + row) * head_dim, head_dim,
                             queries.plain(dq.data(), h)[row]);
    });
  return {dq, dkv};
}

}  // namespace dspp::ops
