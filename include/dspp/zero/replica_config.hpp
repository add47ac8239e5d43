// SPDX-License-Identifier: Apache-2.0
/// What a policy says of states and their traffic, as values; the groups of replicas; and the host's memory.
#pragma once

#include <type_traits>

#include <dspp/autograd/context.hpp>
#include <dspp/placement/delayed.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/placement/replica_traffic.hpp>
#include <dspp/placement/zenflow.hpp>
#include <dspp/tensor/device.hpp>
#include <dspp/zero/stage.hpp>

namespace dspp {

/// Of prefetch_bytes: the next unit, as far as two operations go.
inline constexpr Size next_unit = -1;

struct ReplicaConfig {
  StageRule rule{};
  bool wide_gradients = false;    ///< f32 beside bf16 or f16 values
  Size bucket_bytes = 32_MiB;     ///< of values; a larger parameter gets its own bucket
  Tier optimizer = Tier::device;  ///< where the optimizer's state rests
  OffloadConfig offload{};
  ReplicaTraffic traffic{};
  Tier parameters = Tier::device;   ///< where slices of values and reduced gradients rest, if values are split
  Tier activations = Tier::device;  ///< where recomputations keep their inputs
  bool partitions_activations = false;
  Size prefetch_bytes = next_unit, live_bytes = 0;  ///< as in EngineConfig
  Size delay_after = never_delayed;                 ///< updates before the first delayed one
  ErrorFeedback error_feedback{};                   ///< if traffic feeds errors back
  bool speculates = false;                          ///< updates begin in backward
  bool selects_rows = false;                        ///< those of other rows than the important ones wait
  ZenFlowConfig zenflow{};

  /// Whether an engine keeps more than state between steps.
  constexpr bool keeps_more_for_steps() const {
    return delay_after != never_delayed || traffic.feeds_errors_back || speculates || selects_rows;
  }
  /// Whether anything is in the host's memory beside D's: of a disk the windows, where D's memory is not the host's,
  /// and the reduced gradients of parameters that are there.
  template <Device D>
  constexpr bool uses_host() const {
    return optimizer == Tier::host || parameters != Tier::device || activations == Tier::host ||
           ((optimizer == Tier::disk || activations == Tier::disk) && !imitates_host<D>);
  }
};

/// Throws   Error(usage) for a part that cannot be, or of what the policy does not offload to the host's memory
constexpr void check_replica_config(const ReplicaConfig& config) {
  const auto fits = [](const OffloadPart& part, Tier tier) { return part.is_all() || tier == Tier::host; };
  const OffloadConfig& parts = config.offload;
  // clang-format off
  for (const OffloadPart& part : {parts.optimizer, parts.parameters, parts.activations})
    require(part.share >= 0 && part.share <= 1 && part.most_bytes >= OffloadPart::unlimited, "dspp: OffloadPart needs a share from 0 to 1 and most_bytes of at least 0, but has others. Change them.",
            ErrorCode::usage);
  const bool fit = fits(parts.optimizer, config.optimizer) && fits(parts.parameters, config.parameters) &&
                   fits(parts.activations, config.activations);
  require(fit, "dspp: EngineConfig::offload needs Offload<what, Host> for a share or most_bytes of what, but the policy has none, or another's. Leave them out.",
          ErrorCode::usage);
  // clang-format on
}

/// The host's memory beside the device's, for what rests there. Outlives what is in it.
template <Device D>
class HostMemory {
 public:
  constexpr HostMemory(bool is_used, Memory<D>& device) {
    if (is_used) make(device);
  }
  /// Made beside a device's, unless it is there.
  constexpr void make([[maybe_unused]] Memory<D>& device) {
    if (memory_) return;
    if constexpr (requires { typename D::HostMemory; })
      memory_ = new typename D::HostMemory(device);
    else if constexpr (std::is_default_constructible_v<Memory<D>>)
      memory_ = new Memory<D>();
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  constexpr ~HostMemory() {
    if constexpr (requires { typename D::HostMemory; })
      delete static_cast<typename D::HostMemory*>(memory_);
    else
      delete memory_;
  }
  /// Null if it is not used.
  constexpr Memory<D>* memory() const { return memory_; }

 private:
  Memory<D>* memory_ = nullptr;
};

/// The communicators of a model's replicas: of all, and by node (comm/rank_groups.hpp).
template <Device D>
struct ReplicaGroups {
  CommunicatorOf<D>* all = nullptr;
  CommunicatorOf<D>* on_node = nullptr;
  CommunicatorOf<D>* across_nodes = nullptr;
};

}  // namespace dspp
