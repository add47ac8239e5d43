// SPDX-License-Identifier: Apache-2.0
/// The learning rates and momenta of drawn tasks: by the library's schedules, and by hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include <dspp/optim/schedule.hpp>

namespace dspp::laws {

enum class ScheduleKind { constant, warmup, decay, cosine, one_cycle, range_test, kinds };

/// The rates of a task's steps, as shares of its own.
struct DrawnSchedule {
  ScheduleKind kind = ScheduleKind::constant;
  Size first = 1;                   ///< steps of a warm-up, up a cycle, or of a range test's stride
  Size second = -1;                 ///< down a cycle
  Size stairs = 0;                  ///< of a cycle's first part; of a range test: whether there are some
  Size second_stairs = -1;          ///< of a cycle
  Size decay_steps = 0;             ///< behind a cycle
  bool linear = false;              ///< a warm-up
  static constexpr Size total = 6;  ///< steps of those that end
};

/// What a step is given.
struct StepRates {
  double lr = 0;
  double momentum = -1;  ///< below 0: the optimizer's own
};

StepRates rates_of(const DrawnSchedule& schedule, double lr, Size step);
/// The same, computed as DeepSpeed's runtime/lr_schedules.py and not by optim/schedule.hpp.
StepRates rates_by_hand(const DrawnSchedule& schedule, double lr, Size step);

std::string text_of(const DrawnSchedule& schedule);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
constexpr const char* schedule_names[] = {"constant", "warmup", "decay", "cosine", "one cycle", "range test"};
}  // namespace detail

inline std::string text_of(const DrawnSchedule& schedule) {
  std::string text = detail::schedule_names[static_cast<int>(schedule.kind)];
  if (schedule.kind == ScheduleKind::constant) return text;
  for (const Size n : {schedule.first, schedule.second, schedule.stairs, schedule.second_stairs, schedule.decay_steps})
    text += " " + std::to_string(n);
  return text + (schedule.linear ? " linear" : "");
}

inline StepRates rates_of(const DrawnSchedule& s, double lr, Size step) {
  const Warmup type = s.linear ? Warmup::linear : Warmup::log;
  const WarmupLR warmup{.min_lr = 0.1 * lr, .max_lr = lr, .warmup_steps = s.first, .type = type};
  const WarmupDecayLR decay{
      .total_steps = s.total, .min_lr = 0.1 * lr, .max_lr = lr, .warmup_steps = s.first, .type = type};
  const WarmupCosineLR cosine{.lr = lr,
                              .total_steps = s.total,
                              .warmup_min_ratio = 0.1,
                              .warmup_steps = s.first,
                              .cos_min_ratio = 0.2,
                              .type = type};
  const OneCycle cycle{.min_lr = 0.3 * lr,
                       .max_lr = lr,
                       .first_steps = s.first,
                       .second_steps = s.second,
                       .first_stairs = s.stairs,
                       .second_stairs = s.second_stairs,
                       .decay_steps = s.decay_steps,
                       .decay_rate = 0.5,
                       .min_momentum = 0.5,
                       .max_momentum = 0.7,
                       .momentum_decay_rate = 0.04};
  const LRRangeTest test{.min_lr = 0.3 * lr, .step_size = s.first, .step_rate = 0.4, .staircase = s.stairs > 0};
  switch (s.kind) {
    case ScheduleKind::warmup: return {warmup(step)};
    case ScheduleKind::decay: return {decay(step)};
    case ScheduleKind::cosine: return {cosine(step)};
    case ScheduleKind::one_cycle: return {cycle(step), cycle.momentum(step)};
    case ScheduleKind::range_test: return {test(step)};
    default: return {lr};
  }
}

namespace detail {

/// WarmupLR._get_gamma
inline double gamma_by_hand(const DrawnSchedule& s, double step) {
  const double steps = std::max(2.0, static_cast<double>(s.first));
  if (step >= steps) return 1;
  return s.linear ? step / steps : std::log(step + 1) / std::log(steps);
}

/// OneCycle._get_scale_factor, in stairs
inline double scale_by_hand(const DrawnSchedule& s, double step) {
  const auto first = static_cast<double>(s.first), second = s.second < 0 ? first : static_cast<double>(s.second);
  const double ratio = first / (first + second), turns = (step + 1) / (first + second);
  const double x = turns - std::floor(turns);
  const bool rises = x <= ratio + 1e-9;
  const double scale = rises ? x / ratio : (x - 1) / (ratio - 1);
  const auto stairs = static_cast<double>(rises || s.second_stairs < 0 ? s.stairs : s.second_stairs);
  return stairs > 0 ? std::floor(scale * stairs + 1e-9) / stairs : scale;
}

inline StepRates cycle_by_hand(const DrawnSchedule& s, double lr, double step) {
  const Size length = s.first + (s.second < 0 ? s.first : s.second);
  if (step < static_cast<double>(length)) {
    const double scale = scale_by_hand(s, step);
    return {0.3 * lr * (1 - scale) + lr * scale, 0.7 * (1 - scale) + 0.5 * scale};
  }
  if (s.decay_steps == 0) return {0.3 * lr, 0.7};
  const double decayed = (step + 1 - static_cast<double>(length)) / static_cast<double>(s.decay_steps);
  return {0.3 * lr / (1 + 0.5 * decayed), 0.7 * (1 + 0.04 * decayed)};
}

}  // namespace detail

inline StepRates rates_by_hand(const DrawnSchedule& s, double lr, Size number) {
  const auto step = static_cast<double>(number), total = static_cast<double>(s.total);
  const double warm = std::max(2.0, static_cast<double>(s.first)), gamma = detail::gamma_by_hand(s, step);
  switch (s.kind) {
    case ScheduleKind::warmup: return {lr * (0.1 + 0.9 * gamma)};
    case ScheduleKind::decay: {
      const double left = std::max(0.0, (total - step) / std::max(1.0, total - warm));
      return {lr * (0.1 + 0.9 * (step < warm ? gamma : left))};
    }
    case ScheduleKind::cosine: {
      const double passed = std::min(1.0, (step - warm + 1) / std::max(1.0, total - warm));
      const double wave = 0.2 + 0.8 * (0.5 + 0.5 * std::cos(std::acos(-1.0) * passed));
      return {lr * (step < warm ? 0.1 + 0.9 * gamma : wave)};
    }
    case ScheduleKind::one_cycle: return detail::cycle_by_hand(s, lr, step);
    case ScheduleKind::range_test: {
      const double passed = (step + 1) / static_cast<double>(s.first);
      return {0.3 * lr * (1 + 0.4 * (s.stairs > 0 ? std::floor(passed + 1e-9) : passed))};
    }
    default: return {lr};
  }
}

}  // namespace dspp::laws
