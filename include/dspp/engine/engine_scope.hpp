// SPDX-License-Identifier: Apache-2.0
/// Scopes of an engine's calls: training mode, and an error sentence for a full heap.
#pragma once

#include <type_traits>

#include <dspp/base/otherwise.hpp>
#include <dspp/base/out_of_memory.hpp>
#include <dspp/comm/call_site.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/zero/replicas.hpp>

namespace dspp::detail {

/// f(), with an error sentence in place of std::bad_alloc.
template <class F>
constexpr decltype(auto) with_sentence(const char* who, F f) {
  if (std::is_constant_evaluated()) return f();
  return or_out_of_memory(who, f);
}

/// The same for a call from `site`.
template <class F>
constexpr decltype(auto) with_sentence(const char* who, CallSite site, F f) {
  CalledAt here(site);
  return with_sentence(who, f);
}

/// While in scope, the context is in training mode.
class Training {
 public:
  constexpr explicit Training(bool& flag) : flag_(flag) { flag_ = true; }
  constexpr ~Training() { flag_ = false; }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

 private:
  bool& flag_;
};

/// While in scope, parameters count their uses in `uses`, and units their visits behind those of so many parameters.
struct CountsUses {
  CurrentMicroStep& current;
  constexpr CountsUses(CurrentMicroStep& of, int* uses, int parameters) : current(of) {
    current = {uses, uses + parameters};
  }
  constexpr ~CountsUses() { current = {}; }
};

/// Gradients<ByUse>: the element type without accumulation, f32 with it.
template <class P>
constexpr bool wide_gradients(Size accumulate) {
  using T = typename P::Element;  // detail has its own ElementOf
  if constexpr (std::is_same_v<T, Compute<T>>) return false;
  return std::is_same_v<typename P::GradientChoice, Gradients<ByUse>>
             ? accumulate > 1
             : std::is_same_v<typename P::GradientChoice, Gradients<F32>>;
}

/// The policy's settings for the replicas, as values.
template <class P>
constexpr ReplicaConfig replica_config(const BatchSizes& sizes, const EngineConfig& config) {
  return {stage_rule<P::zero_stage>,
          wide_gradients<P>(sizes.accumulate),
          config.bucket_bytes,
          P::optimizer_tier,
          config.offload,
          P::replica_traffic,
          P::parameter_tier,
          P::activation_tier,
          P::partitions_activations,
          config.prefetch_bytes,
          config.live_bytes,
          P::delays_updates ? config.delay_after : never_delayed,
          config.error_feedback,
          P::speculates,
          P::selects_rows,
          config.zenflow};
}

}  // namespace dspp::detail
