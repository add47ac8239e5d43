// SPDX-License-Identifier: Apache-2.0
/// What an optimizer is: a description with an update of one contiguous range of parameters.
#pragma once

#include <concepts>

#include <dspp/base/element.hpp>
#include <dspp/base/error.hpp>

namespace dspp {

/// Of a parameter: as many as buckets have room for.
inline constexpr int max_moments = 2;

/// One range of a flat shard. T: the values that the model computes with; G: gradients, T or wider; S: the state that
/// accumulates small steps, f32 or f64.
template <class T, class G, class S>
struct FlatRange {
  const G* gradient = nullptr;
  T* parameter = nullptr;
  S* master = nullptr;           ///< null where T is S: the parameter is its own master
  S* moments[max_moments] = {};  ///< as many as the optimizer's moment_count
  Size count = 0;
};

/// What is the same for all ranges of one step.
struct UpdateScalars {
  Size step = 1;              ///< counts from 1
  double lr = 0;              ///< the schedule's, or the optimizer's own
  double gradient_scale = 1;  ///< clipping and unscaling: gradients are multiplied with it
  bool decay = true;          ///< whether weight decay applies to this range
};

/// A literal aggregate that allocates nothing; `update` is one pass that touches each array once. It gives the same
/// bits however a shard is cut into ranges, and on any number of threads. With a `name` and a `describe(f)` that calls
/// f("lr", lr) for each of its numbers, training states know whose moments they hold. With a `check()` that throws, its
/// numbers are checked before a training begins.
template <class O>
concept Optimizer = requires(const O& optimizer, const UpdateScalars& scalars) {
  { O::moment_count } -> std::convertible_to<int>;
  { optimizer.lr } -> std::convertible_to<double>;
  optimizer.update(FlatRange<float, float, float>{}, scalars);
  optimizer.update(FlatRange<bf16, float, float>{}, scalars);
  optimizer.update(FlatRange<bf16, bf16, float>{}, scalars);
  optimizer.update(FlatRange<f16, f16, float>{}, scalars);
  optimizer.update(FlatRange<double, double, double>{}, scalars);
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Neither less than 0 nor infinite nor NaN.
constexpr bool is_at_least_zero(double value) {
  return value >= 0 && value - value == 0;
}
/// A share of what was before: in [0, 1).
constexpr bool is_decay_rate(double value) {
  return value >= 0 && value < 1;
}
}  // namespace detail

/// Throws   Error(usage) unless it is a number of at least 0: also for what a schedule gives
constexpr void check_learning_rate(double rate) {
  // clang-format off
  require(detail::is_at_least_zero(rate), "dspp: a learning rate needs to be a number of at least 0, but got another. Look at lr, or at what the schedule gives.");
  // clang-format on
}

/// Throws   Error(usage) for numbers that the optimizer cannot work with
template <class O>
constexpr void check_optimizer(const O& optimizer) {
  check_learning_rate(optimizer.lr);
  if constexpr (requires { optimizer.check(); }) optimizer.check();
}

}  // namespace dspp
