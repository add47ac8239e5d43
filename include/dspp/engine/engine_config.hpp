// SPDX-License-Identifier: Apache-2.0
/// The configuration of an engine, and the progress of its training.
#pragma once

#include <cstdint>

#include <dspp/data/batch_sizes.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/nn/parameter_group.hpp>
#include <dspp/optim/loss_scale.hpp>
#include <dspp/optim/optimizer.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/placement/zenflow.hpp>
#include <dspp/zero/replica_config.hpp>

namespace dspp {

struct EngineConfig {
  double clip_norm = 0;             ///< largest global gradient norm; 0: no clipping
  Size bucket_bytes = 32_MiB;       ///< of parameters per bucket
  Size prefetch_bytes = next_unit;  ///< of values gathered before they are used, under Zero<3>; 0: none
  Size live_bytes = 0;              ///< of values that stay gathered from forward to backward, under Zero<3>
  LossScaleConfig loss_scale{};     ///< F16 only; in other precisions the scale is 1
  Size skip_nonfinite = 0;          ///< consecutive steps that may be skipped for a loss or gradient that is not finite
  double largest_norm = 0;          ///< a step with a larger gradient norm counts as not finite; 0: no limit
  bool zero_gradients = false;      ///< allows steps whose gradient is zero in every element; else they are an error
  ParameterGroups groups{};  ///< of parameters with rates or decay of their own, or frozen (nn/parameter_group.hpp)
  Size check_ranks = 100;    ///< steps between checks that ranks agree (rank_check.hpp); 0: no check
  OffloadConfig offload{};   ///< of what the policy offloads
  Size delay_after = 40;    ///< updates that a policy with Delayed<1> does not delay: those of a training's first steps
  ZenFlowConfig zenflow{};  ///< of a policy with ZenFlow
  ErrorFeedback error_feedback{};  ///< of ReduceAs<format, LoCo>
  bool graphs = false;  ///< train_batch repeats the launches of a step, on a device with graphs: see step_graphs.hpp
};

/// Throws   Error(usage) for numbers out of range
constexpr void check_engine_config(const EngineConfig& config) {
  require(config.skip_nonfinite >= 0 && config.largest_norm >= 0,
          "dspp: Engine needs a skip_nonfinite and a largest_norm of at least 0, but got less, or NaN. 0 means none.");
  require(config.clip_norm >= 0,
          "dspp: Engine needs a clip_norm of at least 0, but got less, or NaN. 0 means no clipping.");
  require(config.prefetch_bytes >= next_unit && config.live_bytes >= 0,
          "dspp: Engine needs prefetch_bytes and live_bytes of at least 0, but got less. Raise them, or leave them "
          "out.");
  require(config.error_feedback.decay >= 0 && config.error_feedback.decay < 1 && config.error_feedback.reset_steps >= 1,
          "dspp: Engine needs an error_feedback with a decay from 0 to below 1 and reset_steps of at least 1, but got "
          "others. Change them.");
  require(config.delay_after >= 0, "dspp: Engine needs a delay_after of at least 0, but got less. Raise it.");
  const ZenFlowConfig& zenflow = config.zenflow;
  require(zenflow.topk_ratio >= 0 && zenflow.topk_ratio <= 1 && zenflow.full_warm_up_steps >= 0,
          "dspp: Engine needs a zenflow with a topk_ratio from 0 to 1 and full_warm_up_steps of at least 0, but got "
          "others. Change them.");
  require(zenflow.update_interval >= 1 && zenflow.select_interval >= 1 &&
              zenflow.select_interval % zenflow.update_interval == 0,
          "dspp: Engine needs a zenflow with an update_interval of at least 1 and a select_interval that is a multiple "
          "of it, but got others. Change them.");
  require(config.bucket_bytes >= 1, "dspp: Engine needs bucket_bytes of at least 1, but got less. Raise it.");
}

/// Throws   Error(usage) for a group's weight decay if the optimizer has none
template <class Optimizer>
constexpr void check_groups_fit(const ParameterGroups& groups) {
  if constexpr (!requires(Optimizer & optimizer) { optimizer.weight_decay = 0.5; })
    for (const ParameterGroup& group : groups)
      require(
          group.weight_decay < 0,
          "dspp: a parameter group needs an optimizer with a member weight_decay for a weight_decay of its own, but "
          "this one has none. Leave it out, or take another optimizer.");
}

/// Throws   Error(usage) for sizes below 1; a sequence of 0 is unset
constexpr void check_sizes(const BatchSizes& sizes) {
  // clang-format off
  require(sizes.micro_batch >= 1 && sizes.sequence >= 0 && sizes.accumulate >= 1, "dspp: Engine needs sizes of at least 1, but got less. Raise them, or leave them out.", ErrorCode::usage,
          {{"micro_batch", sizes.micro_batch}, {"sequence", sizes.sequence}, {"accumulate", sizes.accumulate}});
  constexpr Size most = Size{1} << 31;
  require(sizes.micro_batch <= most && sizes.sequence <= most && sizes.accumulate <= most, "dspp: Engine needs sizes of at most 2^31, but got more. Lower them.", ErrorCode::usage,
          {{"micro_batch", sizes.micro_batch}, {"sequence", sizes.sequence}, {"accumulate", sizes.accumulate}});
  // clang-format on
}

namespace detail {
/// Throws   Error(usage) for what an engine cannot work with
template <class Optimizer>
constexpr void check_settings(const Optimizer& optimizer, const BatchSizes& sizes, const EngineConfig& config) {
  check_optimizer(optimizer);
  check_sizes(sizes);
  check_engine_config(config);
  check_groups_fit<Optimizer>(config.groups);
}

/// Throws   Error(usage) for a loss scale beside elements that need none
template <class T>
constexpr void check_loss_scale(const EngineConfig& config) {
  require(
      needs_loss_scale<T> || config.loss_scale == LossScaleConfig{},
      "dspp: Engine needs F16 for a loss scale, since the other precisions' is 1, but one is configured. Use F16 or "
      "leave loss_scale out.");
}
}  // namespace detail

/// The state of a training at a step boundary, besides its tensors.
struct TrainingProgress {
  Size steps = 0, skipped_steps = 0;
  Size moment_steps = 0;     ///< since the moments were zero
  double learning_rate = 0;  ///< of the next step, unless a schedule sets another
  std::uint64_t seed = 0;    ///< of the random streams, whose position is `steps`
  bool dynamic_loss_scale = false;
  LossScaleState loss_scale{};
  std::uint64_t run = 0;  ///< identifies the training: the same in all of its checkpoints; 0: not set yet
};

namespace detail {
/// The limits of a step by an optimizer with state of type S. `numbers`: what has the loss scale in its place, or null.
template <class Optimizer, class S>
constexpr StepLimits limits_of(const EngineConfig& config, double loss_scale, const StepNumbers* numbers = nullptr) {
  return {.loss_scale = numbers != nullptr ? 1 : loss_scale,
          .clip_norm = config.clip_norm,
          .largest_norm = config.largest_norm,
          .largest_square = most_moments<Optimizer>() > 0 ? largest_square<S> : 0,
          .zero_gradients = config.zero_gradients,
          .numbers = numbers};
}
}  // namespace detail

}  // namespace dspp
