// SPDX-License-Identifier: Apache-2.0
/// What an engine is told, and what it reports.
#pragma once

#include <cstdint>

#include <dspp/data/batch_sizes.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/step_targets.hpp>
#include <dspp/optim/loss_scale.hpp>

namespace dspp {

struct EngineConfig {
  double clip_norm = 0;          ///< largest global gradient norm; 0: no clipping
  Size bucket_bytes = 32_MiB;    ///< of parameters, per bucket
  LossScaleConfig loss_scale{};  ///< under F16 alone; the other precisions' scale is 1
  Size skip_nonfinite = 0;       ///< steps in a row that may be skipped for a loss or gradient that is not finite
  double largest_norm = 0;       ///< a step of a larger gradient norm is held to be one of those; 0: none is
  bool zero_gradients = false;   ///< take a step whose gradient is zero in every element, too: else it is an error
  Size check_ranks = 100;  ///< steps from one check that ranks hold the same to the next (rank_check.hpp); 0: none
};

/// Throws   Error(usage) for numbers that no step could be taken with
constexpr void check_engine_config(const EngineConfig& config) {
  require(config.skip_nonfinite >= 0 && config.largest_norm >= 0,
          "dspp: Engine needs a skip_nonfinite and a largest_norm of at least 0, but got less, or NaN. 0 means none.");
  require(config.clip_norm >= 0,
          "dspp: Engine needs a clip_norm of at least 0, but got less, or NaN. 0 means no clipping.");
  require(config.bucket_bytes >= 1, "dspp: Engine needs bucket_bytes of at least 1, but got less. Raise it.");
}

/// Throws   Error(usage) for sizes below 1; a sequence of 0 says none
constexpr void check_sizes(const BatchSizes& sizes) {
  // clang-format off
  require(sizes.micro_batch >= 1 && sizes.sequence >= 0 && sizes.accumulate >= 1, "dspp: Engine needs sizes of at least 1, but got less. Raise them, or leave them out.", ErrorCode::usage, {{"micro_batch", sizes.micro_batch}, {"sequence", sizes.sequence}, {"accumulate", sizes.accumulate}});
  // clang-format on
}

/// What step() did.
struct StepReport {
  bool acted = false;        ///< false between accumulation boundaries
  double loss = 0;           ///< the mean over the counted targets of the global batch, the same on every rank
  bool skipped = false;      ///< a loss or gradient was not finite on some rank, or too large: no rank changed anything
  double gradient_norm = 0;  ///< loss scale taken out
  double loss_scale = 1;     ///< that the step was taken with; engine.loss_scale() is the next one's
  double targets = 0;        ///< of the global batch that are not ignored; with target_weights, the sum of theirs
  NonFinite nonfinite{};     ///< where, if it was not finite; its name lives as long as the engine
};

/// Where a training stands, besides its tensors: a step boundary.
struct TrainingProgress {
  Size steps = 0, skipped_steps = 0;
  Size moment_steps = 0;     ///< since the moments were zero
  double learning_rate = 0;  ///< of the next step, unless a schedule sets another
  std::uint64_t seed = 0;    ///< of the random streams, whose position is `steps`
  bool dynamic_loss_scale = false;
  LossScaleState loss_scale{};
  std::uint64_t run = 0;  ///< which training it is: the same in all of its states, and in no other's; 0: not named yet
};

}  // namespace dspp
