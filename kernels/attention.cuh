// SPDX-License-Identifier: Apache-2.0
/// Attention, plainly: a thread has a query, and in the backward pass a query or a key. It is what other kernels are
/// compared with, and takes every rule: masks, windows, soft caps, ranges of keys, a bias of the scores, groups of
/// heads, keys of another sequence than queries.
///
///   s[i, j] = softcap tanh(scale q[i] k[j] / softcap) + bias[i, j]      (scale q[i] k[j] without a softcap)
///   y[i] = sum over j of p[i, j] v[j],   p[i, j] = exp(s[i, j] - lse[i]),   lse[i] = log sum over j of exp(s[i, j])
///   D[i] = dy[i] y[i],   ds[i, j] = p[i, j] (dy[i] v[j] - D[i]),   dbias = ds
///   dq[i] = scale sum over j of c ds k[j],   dk[j] = scale sum over i of c ds q[i],   dv[j] = sum over i of p dy[i]
///   c = 1 - tanh(...)^2 with a softcap, else 1
///
/// All in f32, in order of keys, then of query heads: the same bits in every run. Of a query without keys, or whose
/// scores are all minus infinity, y is 0 and lse infinity.
///
/// Bytes     keys and values once for each query, from the caches
/// Source    Milakov and Gimelshein 2018 for the running softmax; Dao et al. 2022, FlashAttention, algorithm 4
#pragma once

#include <dspp/base/math.hpp>
#include <dspp/ops/kernels.hpp>
#include <dspp/ops/seen_keys.hpp>
#include <kernels/each.cuh>
#include <kernels/softmax_row.cuh>

namespace dspp::gpu {

/// Where heads lie: element c of row i of head h of a sample is base[(sample rows + i) stride + h head_dim + c].
template <class T>
struct HeadsOf {
  T* base = nullptr;
  Size stride = 0;
  __device__ T* row(Size sample, Size rows, Size i, Size head, Size head_dim) const {
    return base + (sample * rows + i) * stride + head * head_dim;
  }
};

template <class T>
struct AttentionOperands {
  kernels::AttentionExtents at;
  kernels::AttentionExtras<T> extras;
  HeadsOf<const T> q, k, v;
  float scale;

  __device__ SeenKeys seen(Size sample) const {
    return {at.sequence, at.keys(), at.rule,
            extras.ranges == nullptr ? nullptr : extras.ranges + sample * at.sequence * 2};
  }
  __device__ static float dot(Size n, const T* a, const T* b) {
    float sum = 0;
    for (Size c = 0; c < n; ++c) sum += to_float(a[c]) * to_float(b[c]);
    return sum;
  }
  /// s[i, j] of query head h, and c, the derivative of the cap.
  __device__ float score(Size sample, Size h, Size i, Size j, float& slope) const {
    float s = scale * dot(at.head_dim, q.row(sample, at.sequence, i, h, at.head_dim),
                          k.row(sample, at.keys(), j, h / at.group(), at.head_dim));
    slope = 1;
    if (at.rule.softcap > 0) {
      const auto cap = static_cast<float>(at.rule.softcap);
      const float t = math::tanh(s / cap);
      s = cap * t;
      slope = 1 - t * t;
    }
    if (extras.bias != nullptr) s += to_float(extras.bias[(h * at.sequence + i) * at.keys() + j]);
    return s;
  }
};

/// Columns of a head that a thread sums at once; heads of more are gone through again.
inline constexpr int head_columns = 64;

/// Index (sample, head, query).
template <class T>
struct PlainAttention {
  AttentionOperands<T> of;
  HeadsOf<T> y;
  float* log_sum_exp;

  __device__ void operator()(Size index) const {
    const auto& at = of.at;
    const Size i = index % at.sequence, h = index / at.sequence % at.heads, sample = index / at.sequence / at.heads;
    const SeenKeys seen = of.seen(sample);
    const Size first = seen.from(i), end = seen.by(i);
    float largest = minus_infinity, sum = 0, slope = 0;
    for (Size j = first; j < end; ++j) {
      const float s = of.score(sample, h, i, j, slope);
      if (s == minus_infinity) continue;
      if (!(s <= largest)) {
        sum *= expf(largest - s);
        largest = s;
      }
      sum += expf(s - largest);
    }
    const float lse = sum == 0 ? -minus_infinity : largest + logf(sum);
    log_sum_exp[index] = lse;
    T* const to = y.row(sample, at.sequence, i, h, at.head_dim);
    for (Size begin = 0; begin < at.head_dim; begin += head_columns) {
      float values[head_columns] = {};
      for (Size j = first; j < end; ++j) {
        const float p = expf(of.score(sample, h, i, j, slope) - lse);
        const T* const v = of.v.row(sample, at.keys(), j, h / at.group(), at.head_dim);
        for (int c = 0; c < head_columns; ++c)
          if (begin + c < at.head_dim) values[c] += p * to_float(v[begin + c]);
      }
      for (int c = 0; c < head_columns; ++c)
        if (begin + c < at.head_dim) to[begin + c] = from_float<T>(values[c]);
    }
  }
};

template <class T>
struct AttentionUpstream {
  AttentionOperands<T> of;
  HeadsOf<const T> y, dy;
  const float* log_sum_exp;

  /// p[i, j], and ds[i, j] before the derivative of the cap.
  __device__ void gradient(Size sample, Size h, Size i, Size j, float d, float& p, float& ds, float& slope) const {
    const auto& at = of.at;
    const float lse = log_sum_exp[(sample * at.heads + h) * at.sequence + i];
    p = expf(of.score(sample, h, i, j, slope) - lse);
    ds = p * (of.dot(at.head_dim, dy.row(sample, at.sequence, i, h, at.head_dim),
                     of.v.row(sample, at.keys(), j, h / at.group(), at.head_dim)) -
              d);
  }
  /// D[i].
  __device__ float own(Size sample, Size h, Size i) const {
    const auto& at = of.at;
    return of.dot(at.head_dim, dy.row(sample, at.sequence, i, h, at.head_dim),
                  y.row(sample, at.sequence, i, h, at.head_dim));
  }
};

/// Index (sample, head, query).
template <class T>
struct PlainAttentionQueries {
  AttentionUpstream<T> from;
  HeadsOf<T> dq;

  __device__ void operator()(Size index) const {
    const auto& at = from.of.at;
    const Size i = index % at.sequence, h = index / at.sequence % at.heads, sample = index / at.sequence / at.heads;
    const SeenKeys seen = from.of.seen(sample);
    const float d = from.own(sample, h, i);
    T* const to = dq.row(sample, at.sequence, i, h, at.head_dim);
    for (Size begin = 0; begin < at.head_dim; begin += head_columns) {
      float sums[head_columns] = {};
      for (Size j = seen.from(i); j < seen.by(i); ++j) {
        float p, ds, slope;
        from.gradient(sample, h, i, j, d, p, ds, slope);
        const T* const k = from.of.k.row(sample, at.keys(), j, h / at.group(), at.head_dim);
        for (int c = 0; c < head_columns; ++c)
          if (begin + c < at.head_dim) sums[c] += slope * ds * to_float(k[begin + c]);
      }
      for (int c = 0; c < head_columns; ++c)
        if (begin + c < at.head_dim) to[begin + c] = from_float<T>(from.of.scale * sums[c]);
    }
  }
};

/// Index (sample, head of keys and values, key).
template <class T>
struct PlainAttentionKeys {
  AttentionUpstream<T> from;
  HeadsOf<T> dk, dv;

  __device__ void operator()(Size index) const {
    const auto& at = from.of.at;
    const Size j = index % at.keys(), kv_head = index / at.keys() % at.kv_heads,
               sample = index / at.keys() / at.kv_heads;
    const SeenKeys seen = from.of.seen(sample);
    constexpr int columns = head_columns / 2;
    for (Size begin = 0; begin < at.head_dim; begin += columns) {
      float of_k[columns] = {}, of_v[columns] = {};
      for (Size h = kv_head * at.group(); h < (kv_head + 1) * at.group(); ++h)
        for (Size i = 0; i < at.sequence; ++i) {
          if (j < seen.from(i) || j >= seen.by(i)) continue;
          float p, ds, slope;
          from.gradient(sample, h, i, j, from.own(sample, h, i), p, ds, slope);
          const T* const q = from.of.q.row(sample, at.sequence, i, h, at.head_dim);
          const T* const dy = from.dy.row(sample, at.sequence, i, h, at.head_dim);
          for (int c = 0; c < columns; ++c)
            if (begin + c < at.head_dim) {
              of_k[c] += slope * ds * to_float(q[begin + c]);
              of_v[c] += p * to_float(dy[begin + c]);
            }
        }
      T* const to_k = dk.row(sample, at.keys(), j, kv_head, at.head_dim);
      T* const to_v = dv.row(sample, at.keys(), j, kv_head, at.head_dim);
      for (int c = 0; c < columns; ++c)
        if (begin + c < at.head_dim) {
          to_k[begin + c] = from_float<T>(from.of.scale * of_k[c]);
          to_v[begin + c] = from_float<T>(of_v[c]);
        }
    }
  }
};

/// Index (head, query, key).
template <class T>
struct PlainAttentionBias {
  AttentionUpstream<T> from;
  float* dbias;

  __device__ void operator()(Size index) const {
    const auto& at = from.of.at;
    const Size j = index % at.keys(), i = index / at.keys() % at.sequence, h = index / at.keys() / at.sequence;
    float sum = dbias[index];
    for (Size sample = 0; sample < at.batch; ++sample) {
      const SeenKeys seen = from.of.seen(sample);
      if (j < seen.from(i) || j >= seen.by(i)) continue;
      float p, ds, slope;
      from.gradient(sample, h, i, j, from.own(sample, h, i), p, ds, slope);
      sum += ds;
    }
    dbias[index] = sum;
  }
};

template <class T>
AttentionOperands<T> attention_operands(const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras,
                                        HeadsOf<const T> q, HeadsOf<const T> k, HeadsOf<const T> v) {
  const float scale =
      at.rule.scale != 0 ? static_cast<float>(at.rule.scale) : 1.0f / std::sqrt(static_cast<float>(at.head_dim));
  return {at, extras, q, k, v, scale};
}

template <class T>
void plain_attention(cudaStream_t stream, const AttentionOperands<T>& of, HeadsOf<T> y, float* log_sum_exp) {
  const Size queries = of.at.batch * of.at.heads * of.at.sequence;
  launch_each(Work{"attention", queries, of.at.head_dim}, stream, queries, PlainAttention<T>{of, y, log_sum_exp});
}

/// dbias may be null, else it grows.
template <class T>
void plain_attention_backward(cudaStream_t stream, const AttentionUpstream<T>& from, HeadsOf<T> dq, HeadsOf<T> dk,
                              HeadsOf<T> dv, float* dbias) {
  const auto& at = from.of.at;
  const Size queries = at.batch * at.heads * at.sequence, keys = at.batch * at.kv_heads * at.keys();
  const Work work{"attention_backward", queries, at.head_dim};
  launch_each(work, stream, queries, PlainAttentionQueries<T>{from, dq});
  launch_each(work, stream, keys, PlainAttentionKeys<T>{from, dk, dv});
  if (dbias != nullptr)
    launch_each(work, stream, at.heads * at.sequence * at.keys(), PlainAttentionBias<T>{from, dbias});
}

/// Index: a sample. The ranges of kernels::KeyRanges.
struct KeyRanges {
  Size sequence, keys;
  const std::int32_t *lengths, *documents;
  std::int32_t* ranges;
  __device__ void operator()(Size sample) const {
    const Size length = lengths == nullptr ? keys : lengths[sample];
    const std::int32_t* const ids = documents == nullptr ? nullptr : documents + sample * sequence;
    std::int32_t* const to = ranges + sample * sequence * 2;
    for (Size begin = 0, end = 0; begin < sequence; begin = end) {
      do ++end;
      while (end < sequence && (ids == nullptr || ids[end] == ids[begin]));
      for (Size i = begin; i < end; ++i) {
        to[2 * i] = static_cast<std::int32_t>(begin);
        to[2 * i + 1] = static_cast<std::int32_t>(ids != nullptr && end < length ? end : length);
      }
    }
  }
};

inline void key_ranges(cudaStream_t stream, Size batch, Size sequence, Size keys, const std::int32_t* lengths,
                       const std::int32_t* documents, std::int32_t* ranges) {
  launch_each(Work{"key_ranges", batch, sequence}, stream, batch,
              KeyRanges{sequence, keys, lengths, documents, ranges});
}

}  // namespace dspp::gpu
