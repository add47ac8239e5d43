// SPDX-License-Identifier: Apache-2.0
/// The loss scale: the factor of the loss before backward, so that small gradients do not vanish in f16.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include <dspp/base/element.hpp>
#include <dspp/base/error.hpp>

namespace dspp {

/// A static or a dynamic loss scale; the defaults are DeepSpeed's for fp16.
struct LossScaleConfig {
  double fixed = 0;        ///< the scale of all steps; 0: dynamic
  double initial = 65536;  ///< 2^16
  Size window = 1000;      ///< steps without overflow after which the scale doubles
  double minimum = 1;
  Size hysteresis = 2;                  ///< overflows until the scale halves, the halving one included
  bool consecutive_hysteresis = false;  ///< a step without overflow resets the hysteresis; else only a doubling does
  friend constexpr bool operator==(const LossScaleConfig&, const LossScaleConfig&) = default;
};

/// The state of a dynamic scale: with it, another LossScale of the same configuration continues identically.
struct LossScaleState {
  double value = 1;
  Size updates = 0, last_overflow = -1;
  Size hysteresis = 1;  ///< overflows left
};

/// True if gradients of T need a loss scale: T's smallest values are larger than gradients may be.
template <class T>
inline constexpr bool needs_loss_scale = std::is_same_v<T, f16>;

/// The scale of the next step, given which steps before it overflowed. With i updates so far and l the last one that
/// overflowed, or -1, an update is
///
///   overflow   hysteresis left > 1: one less of it; else scale = max(scale / 2, minimum)
///   none       if s = i - l - 1 > 0 and window divides s: scale = 2 scale, and all of the hysteresis is there again
///
/// The same on all ranks if all call update with the same argument.
///
/// Source   DeepSpeed, runtime/fp16/loss_scaler.py: DynamicLossScaler, LossScaler
class LossScale {
 public:
  constexpr LossScale() : LossScale(LossScaleConfig{.fixed = 1}) {}
  constexpr explicit LossScale(const LossScaleConfig& config);

  constexpr double value() const { return value_; }
  constexpr bool dynamic() const { return config_.fixed == 0; }

  /// Records a step.
  ///
  /// Throws   Error(state) on overflow at the minimum of a dynamic scale with no hysteresis left; nothing changes
  constexpr void update(bool overflow);

  constexpr LossScaleState state() const { return {value_, updates_, last_overflow_, hysteresis_}; }
  /// Restores a state. A dynamic scale is clamped to this configuration: at least its minimum, and a hysteresis from 1
  /// to the configured one.
  constexpr void set_state(const LossScaleState& state) {
    value_ = state.value, updates_ = state.updates, last_overflow_ = state.last_overflow;
    hysteresis_ = state.hysteresis;
    if (!dynamic()) return;
    value_ = std::max(config_.minimum, value_);
    hysteresis_ = std::clamp<Size>(hysteresis_, 1, config_.hysteresis);
  }

 private:
  constexpr void lower();

  LossScaleConfig config_;
  double value_;
  Size updates_ = 0, last_overflow_ = -1;
  Size hysteresis_;  ///< overflows left
};

// ---------------------------------------------------------------------------------------------------------------------

constexpr LossScale::LossScale(const LossScaleConfig& config)
    : config_(config), value_(config.fixed > 0 ? config.fixed : config.initial), hysteresis_(config.hysteresis) {
  // clang-format off
  require(config.fixed >= 0 && config.fixed <= 0x1p127, "dspp: LossScale needs a fixed scale from 0, which is dynamic, to 2^127, but got another. Name one between.");
  require(config.minimum > 0 && config.initial >= config.minimum && config.initial <= 0x1p127, "dspp: LossScale needs 0 < minimum <= initial <= 2^127, but got others. Change one of them.");
  require(config.window >= 1 && config.hysteresis >= 1, "dspp: LossScale needs a window and a hysteresis of at least 1, but got less. Raise it.");
  // clang-format on
}

constexpr void LossScale::update(bool overflow) {
  if (!dynamic()) return;
  if (overflow) {
    lower();
    last_overflow_ = updates_;
  } else {
    if (config_.consecutive_hysteresis) hysteresis_ = config_.hysteresis;
    const Size stable = updates_ - last_overflow_ - 1;
    if (stable > 0 && stable % config_.window == 0) {
      hysteresis_ = config_.hysteresis;
      value_ *= 2;
    }
  }
  ++updates_;
}

constexpr void LossScale::lower() {
  if (hysteresis_ > 1) {
    --hysteresis_;
    return;
  }
  if (value_ == config_.minimum)
    fail(ErrorCode::state,
         "dspp: training in f16 needs gradients that are finite at some loss scale, but at the minimum of " +
             std::to_string(config_.minimum) + " they overflow too, in update " + std::to_string(updates_ + 1) +
             " of the scale. Lower the learning rate, look for what is not finite in the data, or train in Bf16.");
  value_ = value_ / 2 > config_.minimum ? value_ / 2 : config_.minimum;
}

}  // namespace dspp
