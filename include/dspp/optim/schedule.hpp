// SPDX-License-Identifier: Apache-2.0
/// Learning-rate schedules, with DeepSpeed's names, parameters and formulas.
///
/// The argument is DeepSpeed's `last_batch_iteration`: 0 at the first step. Before it the rate is 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>

#include <dspp/base/types.hpp>

namespace dspp {

/// A learning-rate schedule.
template <class S>
concept Schedule = requires(const S& schedule, Size iteration) {
  { schedule(iteration) } -> std::same_as<double>;
};

enum class Warmup { log, linear };

/// log(i + 1) / log W or i / W for i < W = max(2, warmup_steps), then 1.
///
/// Source   DeepSpeed, runtime/lr_schedules.py: WarmupLR
inline double warmup_share(Size iteration, Size warmup_steps, Warmup type) {
  const auto steps = static_cast<double>(std::max<Size>(2, warmup_steps)), i = static_cast<double>(iteration);
  if (iteration < 0) return 0;
  if (i >= steps) return 1;
  return type == Warmup::log ? std::log(i + 1) / std::log(steps) : i / steps;
}

/// The same rate at every step.
struct ConstantLR {
  double lr = 1e-3;
  double operator()(Size) const { return lr; }
};

/// From min_lr to max_lr, then constant.
struct WarmupLR {
  double min_lr = 0;
  double max_lr = 1e-3;
  Size warmup_steps = 1000;
  Warmup type = Warmup::log;

  double operator()(Size iteration) const {
    if (iteration < 0) return 0;
    return min_lr + (max_lr - min_lr) * warmup_share(iteration, warmup_steps, type);
  }
};

/// As WarmupLR, then linearly down: min + (max - min) * max(0, (T - i) / max(1, T - W)), T = total_steps.
struct WarmupDecayLR {
  Size total_steps = 0;
  double min_lr = 0;
  double max_lr = 1e-3;
  Size warmup_steps = 1000;
  Warmup type = Warmup::log;

  double operator()(Size iteration) const {
    if (iteration < 0) return 0;
    const Size warmup = std::max<Size>(2, warmup_steps);
    double share = warmup_share(iteration, warmup_steps, type);
    if (iteration >= warmup)
      share = std::max(
          0.0, static_cast<double>(total_steps - iteration) / std::max(1.0, static_cast<double>(total_steps - warmup)));
    return min_lr + (max_lr - min_lr) * share;
  }
};

/// lr times a ratio: from warmup_min_ratio to 1, then down half a cosine to cos_min_ratio:
/// c + (1 - c) (1 + cos(pi min(1, (i - W + 1) / max(1, T - W)))) / 2.
struct WarmupCosineLR {
  double lr = 1e-3;
  Size total_steps = 0;
  double warmup_min_ratio = 0;
  Size warmup_steps = 1000;
  double cos_min_ratio = 1e-4;
  Warmup type = Warmup::log;

  double operator()(Size iteration) const {
    if (iteration < 0) return 0;
    const Size warmup = std::max<Size>(2, warmup_steps);
    if (iteration < warmup)
      return lr * (warmup_min_ratio + (1 - warmup_min_ratio) * warmup_share(iteration, warmup_steps, type));
    const double passed = static_cast<double>(iteration - warmup + 1);
    const double angle = std::min(1.0, passed / std::max(1.0, static_cast<double>(total_steps - warmup)));
    constexpr double pi = 3.14159265358979323846;
    return lr * std::max(0.0, cos_min_ratio + (1 - cos_min_ratio) * (1 + std::cos(pi * angle)) / 2);
  }
};

static_assert(Schedule<ConstantLR> && Schedule<WarmupLR> && Schedule<WarmupDecayLR> && Schedule<WarmupCosineLR>);

}  // namespace dspp
