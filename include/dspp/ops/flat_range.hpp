// SPDX-License-Identifier: Apache-2.0
/// A range of parameters with their gradients and optimizer state, and the blocks that an optimizer's rule works on.
#pragma once

#include <cstddef>
#include <cstdint>

#include <dspp/base/types.hpp>
#include <dspp/ops/step_numbers.hpp>

namespace dspp {

/// Largest number of moments per parameter.
inline constexpr int max_moments = 2;

/// Which rows of a matrix an operation takes: a mark of each, in a device's memory.
struct RowChoice {
  const std::uint8_t* marks = nullptr;  ///< null: it takes all
  Size columns = 1;                     ///< elements of a row
  Size first = 0;                       ///< position of a range's first element in the matrix
  std::uint8_t taken = 0;               ///< the mark of rows that are taken

  DSPP_HOST_DEVICE constexpr Size row_of(Size element) const { return (first + element) / columns; }
  /// Whether an element of the range is of such a row; called where marks lie.
  DSPP_HOST_DEVICE constexpr bool takes(Size element) const {
    return marks == nullptr || marks[row_of(element)] == taken;
  }
};

/// One range of a flat shard, in a device's memory. T: the values that the model computes with; G: gradients, T or
/// wider; S: the state that accumulates small steps, f32 or f64.
template <class T, class G, class S>
struct FlatRange {
  const G* gradient = nullptr;
  T* parameter = nullptr;        ///< null where masters alone change
  S* master = nullptr;           ///< null where T is S: the parameter is its own master
  S* moments[max_moments] = {};  ///< as many as the optimizer's moment_count
  Size count = 0;
  RowChoice rows{};  ///< the rest is as if it were not in the range
};

/// Why a step updates nothing, or that it does.
enum class StepVerdict { update, nonfinite, spike, overflowing_square, zero_gradient, no_targets };

/// What a verdict depends on beside the gradient norm.
struct StepLimits {
  double loss_scale = 1;                 ///< the gradient's, undone
  double clip_norm = 0;                  ///< 0: none
  double largest_norm = 0;               ///< above it, a spike; 0: none
  double largest_square = 0;             ///< of the norm after clipping; 0: none
  bool zero_gradients = true;            ///< a norm of 0 updates
  const StepNumbers* numbers = nullptr;  ///< where the loss scale is; null: it is `loss_scale`
};

/// The places of a micro-batch's counts in a device's memory, each a double.
struct TargetCounts {
  static constexpr Size all = 0;      ///< targets, including ignored ones
  static constexpr Size nonzero = 1;  ///< targets that are not ignored, of a weight above 0; without weights, `counted`
  static constexpr Size loss = 2;     ///< mean loss * counted
  static constexpr Size counted = 3;  ///< sum of the weights of those that are not ignored
  static constexpr Size count = 4;
};

/// The places of a step's sums over micro-batches in a device's memory, each a double.
struct StepSums {
  static constexpr Size first_micro_batches = 0;  ///< TargetCounts, summed over all replicas
  static constexpr Size own_loss = 4;             ///< mean loss * counted of this rank's micro-batches
  static constexpr Size own_counted = 5;          ///< of this rank's micro-batches
  static constexpr Size bad_loss = 6;             ///< this rank's first mean loss that is not finite; else 0
  static constexpr Size bad_micro_step = 7;       ///< its micro-step, counted from 1; else 0
  static constexpr Size count = 8;
};

/// The places of a step's numbers in a device's memory, each a double.
struct StepScalars {
  static constexpr Size gradient_norm = 0;   ///< without loss scale, and corrected
  static constexpr Size gradient_scale = 1;  ///< clipping, unscaling and correction: the factor of gradients
  static constexpr Size verdict = 2;         ///< a StepVerdict
  static constexpr Size loss = 3;            ///< mean over the counted targets of the global batch
  static constexpr Size targets = 4;         ///< what counts of them
  static constexpr Size correction = 5;      ///< of the number of targets, a factor of the gradient
  static constexpr Size bad_loss = 6;        ///< as in StepSums
  static constexpr Size bad_micro_step = 7;  ///< as in StepSums
  static constexpr Size count = 8;
};

/// Whether these StepScalars, or null, let an update be; called where they lie.
DSPP_HOST_DEVICE constexpr bool updates(const double* step) {
  return step == nullptr || step[StepScalars::verdict] == static_cast<double>(StepVerdict::update);
}

/// How one parameter's range is updated, as its layer and its group say.
struct RangeSettings {
  bool decays = true;        ///< takes part in weight decay
  double lr_factor = 1;      ///< of the step's learning rate
  double weight_decay = -1;  ///< in place of the optimizer's; below 0: the optimizer's
};

/// What an update depends on beside the range.
struct UpdateScalars {
  Size step = 1;              ///< counts from 1
  double lr = 0;              ///< from the schedule, or else the optimizer
  double gradient_scale = 1;  ///< the factor of gradients; that of the step's StepScalars where there are some
  bool decay = true;          ///< whether weight decay applies to the range
  RangeSettings range{};      ///< those of the range, which lr and decay have in them
};

/// The extents of a whole parameter.
struct MatrixShape {
  Size rows = 0, columns = 0;
};

/// The scalars of a range with its settings.
constexpr UpdateScalars scalars_of(UpdateScalars scalars, const RangeSettings& range) {
  scalars.lr *= range.lr_factor;
  scalars.decay = range.decays;
  scalars.range = range;
  return scalars;
}

/// The optimizer of a range with its settings.
template <class O>
constexpr O optimizer_of(O optimizer, const RangeSettings& range) {
  if constexpr (requires { optimizer.set_weight_decay(range.weight_decay); }) {
    if (range.weight_decay >= 0) optimizer.set_weight_decay(range.weight_decay);
  } else if constexpr (requires { optimizer.weight_decay = range.weight_decay; }) {
    if (range.weight_decay >= 0) optimizer.weight_decay = range.weight_decay;
  }
  return optimizer;
}

/// What an optimizer's rule reads and writes: N elements in the state's type, as many as the device handles at once.
/// The gradient is already scaled, and what a rule does not write is unchanged.
template <class S, std::size_t N>
struct UpdateBlock {
  static constexpr int length = static_cast<int>(N);
  using Lanes = S[N];

  Lanes gradient;
  const S *value, *moments[max_moments];
  Lanes new_value, new_moments[max_moments];
};

}  // namespace dspp
