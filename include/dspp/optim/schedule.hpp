// SPDX-License-Identifier: Apache-2.0
/// Learning-rate schedules, with DeepSpeed's names, parameters and formulas.
///
/// The argument is DeepSpeed's `last_batch_iteration`: 0 at the first step. Before it the rate of a warm-up is 0, that
/// of OneCycle and LRRangeTest the smallest.
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

/// Up from a small rate, to find the largest that trains: min_lr (1 + step_rate (i + 1) / step_size), the quotient
/// rounded down with `staircase`.
///
/// Source   Smith 2015, arXiv:1506.01186, section 3.3; DeepSpeed, runtime/lr_schedules.py: LRRangeTest
struct LRRangeTest {
  double min_lr = 1e-3;
  Size step_size = 2000;
  double step_rate = 1;
  bool staircase = false;

  double operator()(Size iteration) const {
    const double passed =
        static_cast<double>(std::max<Size>(0, iteration + 1)) / static_cast<double>(std::max<Size>(1, step_size));
    return min_lr * (1 + step_rate * (staircase ? std::floor(passed) : passed));
  }
};

/// One cycle of F = first_steps up and S = second_steps down, then decay. With n = i + 1 and c = n modulo F + S, the
/// scale is c / F up to F and (F + S - c) / S behind it, rounded down to a multiple of 1 / stairs if there are stairs:
///
///   rate       min_lr + (max_lr - min_lr) scale                            for i < F + S
///              min_lr / (1 + decay_rate (i - F - S + 1) / decay_steps)     then; min_lr if decay_steps is 0
///   momentum   max_momentum - (max_momentum - min_momentum) scale
///              max_momentum (1 + momentum_decay_rate (i - F - S + 1) / decay_steps)
///
///   engine.set_learning_rate(cycle(i));
///   engine.set_optimizer(AdamW{.beta1 = cycle.momentum(i), .beta2 = 0.99});    as DeepSpeed's cycle_momentum does
///
/// Source   Smith 2018, arXiv:1803.09820; DeepSpeed, runtime/lr_schedules.py: OneCycle
struct OneCycle {
  double min_lr = 1e-4;
  double max_lr = 1e-3;
  Size first_steps = 2000;
  Size second_steps = -1;   ///< -1: first_steps
  Size first_stairs = 0;    ///< 0: none
  Size second_stairs = -1;  ///< -1: first_stairs
  Size decay_steps = 0;     ///< 0: no decay
  double decay_rate = 0;
  double min_momentum = 0.8;
  double max_momentum = 0.9;
  double momentum_decay_rate = 0;

  double operator()(Size iteration) const {
    if (iteration < total()) return min_lr + (max_lr - min_lr) * scale(iteration);
    return min_lr / (1 + decay_rate * decayed(iteration));
  }
  double momentum(Size iteration) const {
    if (iteration < total()) return max_momentum - (max_momentum - min_momentum) * scale(iteration);
    return max_momentum * (1 + momentum_decay_rate * decayed(iteration));
  }

 private:
  constexpr Size first() const { return std::max<Size>(1, first_steps); }
  constexpr Size second() const { return second_steps < 0 ? first() : second_steps; }
  constexpr Size total() const { return first() + second(); }
  double decayed(Size iteration) const {
    return decay_steps == 0 ? 0 : static_cast<double>(iteration - total() + 1) / static_cast<double>(decay_steps);
  }
  double scale(Size iteration) const {
    const Size passed = std::max<Size>(0, iteration + 1) % total();
    const bool rises = passed <= first();
    const Size stairs = rises || second_stairs < 0 ? first_stairs : second_stairs;
    const Size part = rises ? passed : total() - passed, length = rises ? first() : second();
    if (stairs > 0) return static_cast<double>(part * stairs / length) / static_cast<double>(stairs);
    return static_cast<double>(part) / static_cast<double>(length);
  }
};

static_assert(Schedule<LRRangeTest> && Schedule<OneCycle>);
static_assert(Schedule<ConstantLR> && Schedule<WarmupLR> && Schedule<WarmupDecayLR> && Schedule<WarmupCosineLR>);

}  // namespace dspp
