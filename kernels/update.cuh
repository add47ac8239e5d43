// SPDX-License-Identifier: Apache-2.0
/// An optimizer's rule on every element of a flat shard, in one launch: what adamw.cuh and sgd.cuh share.
///
/// A shard is one array each of gradients, of values in f32 (the masters), of moments in f32, and of the values that
/// the model computes with, T. Its parameters differ in settings, not in arrays: `segments` says from which element on
/// which settings hold. Gradients are scaled by `step`'s gradient_scale, and a verdict other than update leaves
/// everything as it is, so that the host need not wait for the norm.
#pragma once

#include <cstddef>

#include <dspp/ops/flat_range.hpp>
#include <kernels/element.cuh>

namespace dspp::gpu {

/// Settings of the elements from `begin` on, up to the next segment's.
struct Segment {
  Size begin = 0;
  float weight_decay = 0, lr_factor = 1;
};

/// A shard in the device's memory. `values` may be null where T is float: then `parameter` holds them.
template <class T, class G>
struct Shard {
  Size count = 0;
  const G* gradient = nullptr;
  T* parameter = nullptr;
  float* values = nullptr;
  float* moments[max_moments] = {};
  const Segment* segments = nullptr;  ///< null: `common` for all
  int segment_count = 0;
  Segment common{};
  RowChoice rows{};  ///< by kernels of one element a thread
  float scale = 1;   ///< of gradients, where there is no step or they are `unscaled`
  bool unscaled = false;
};

/// The segment of an element: the last that begins at or before it.
__device__ inline int find_segment(const Segment* segments, int count, Size element) {
  int first = 0;
  while (count > 1) {
    const int half = count / 2;
    if (segments[first + half].begin <= element)
      first += half, count -= half;
    else
      count = half;
  }
  return first;
}

/// The rule with what it has in the device's memory, if it has some there.
template <class Rule>
__device__ inline Rule loaded_rule(const Rule& rule) {
  if constexpr (requires { rule.loaded(); })
    return rule.loaded();
  else
    return rule;
}

/// rule(settings, gradient, value, moments...) of each element.
///
/// Bytes     AdamW with bf16 parameters and gradients: 30 an element
template <int V, class Rule, class T, class G>
__global__ void __launch_bounds__(256) update_kernel(Rule rule, Shard<T, G> shard, const double* step) {
  float scale = shard.scale;
  if (!updates(step)) return;
  if (step != nullptr && !shard.unscaled) scale = static_cast<float>(step[StepScalars::gradient_scale]);
  const Size begin = (static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (begin >= shard.count) return;
  if constexpr (V == 1)
    if (!shard.rows.takes(begin)) return;
  float* const values = shard.values;
  const Rule own = loaded_rule(rule);
  Segment settings = shard.common;
  int at = 0;
  Size end = shard.count;  // of the settings
  const auto take_settings = [&] {
    settings = shard.segments[at];
    end = at + 1 < shard.segment_count ? shard.segments[at + 1].begin : shard.count;
  };
  if (shard.segments != nullptr) {
    at = find_segment(shard.segments, shard.segment_count, begin);
    take_settings();
  }
  float g[V] = {}, p[V] = {}, m[max_moments][V] = {};
  const bool whole = begin + V <= shard.count;
  const auto each = [&](Size i, int v) {
    while (i >= end) ++at, take_settings();
    float moments[max_moments] = {};
    DSPP_UNROLL
    for (int k = 0; k < Rule::moment_count; ++k) moments[k] = m[k][v];
    own(settings, g[v] * scale, p[v], moments);
    DSPP_UNROLL
    for (int k = 0; k < Rule::moment_count; ++k) m[k][v] = moments[k];
  };
  if (whole) {
    load(g, shard.gradient + begin);
    load(p, values + begin);
    DSPP_UNROLL
    for (int k = 0; k < Rule::moment_count; ++k) load(m[k], shard.moments[k] + begin);
    for (int v = 0; v < V; ++v) each(begin + v, v);
    store(values + begin, p);
    DSPP_UNROLL
    for (int k = 0; k < Rule::moment_count; ++k) store(shard.moments[k] + begin, m[k]);
    if (shard.parameter != nullptr) store(shard.parameter + begin, p);
    return;
  }
  for (int v = 0; v < V; ++v)
    if (const Size i = begin + v; i < shard.count) {
      g[v] = to_float(shard.gradient[i]);
      p[v] = values[i];
      DSPP_UNROLL
      for (int k = 0; k < Rule::moment_count; ++k) m[k][v] = shard.moments[k][i];
      each(i, v);
      values[i] = p[v];
      DSPP_UNROLL
      for (int k = 0; k < Rule::moment_count; ++k) shard.moments[k][i] = m[k][v];
      if (shard.parameter != nullptr) shard.parameter[i] = from_float<T>(p[v]);
    }
}

template <class Rule, class T, class G>
void launch_update(const char* operation, cudaStream_t stream, const Rule& rule, Shard<T, G> shard,
                   const double* step) {
  if constexpr (std::is_same_v<T, float>)
    if (shard.values == nullptr) {
      shard.values = shard.parameter;
      shard.parameter = nullptr;
    }
  // With two moments 8 elements a thread have enough accesses in flight; with fewer, more threads do.
  constexpr int longest = Rule::moment_count == 2 && sizeof(T) == 2 ? 8 : 4;
  bool aligned = shard.rows.marks == nullptr && is_aligned(shard.gradient) && is_aligned(shard.parameter) &&
                 is_aligned(shard.values);
  DSPP_UNROLL
  for (int k = 0; k < Rule::moment_count; ++k) aligned = aligned && is_aligned(shard.moments[k]);
  launch(Work{operation, 1, shard.count}, aligned ? update_kernel<longest, Rule, T, G> : update_kernel<1, Rule, T, G>,
         blocks_for(shard.count, 256 * (aligned ? longest : 1)), {256}, stream, rule, shard, step);
}

}  // namespace dspp::gpu
