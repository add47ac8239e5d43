// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <dspp/ops/step_verdict.hpp>
#include <dspp/ops/update.hpp>
#include <dspp/tensor/tensor.hpp>

using namespace dspp;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

struct Judged {
  double norm, scale;
  StepVerdict verdict;
};

Judged judged(const StepLimits& limits, double norm, double correction = 1, double targets = 1) {
  Pool pool;
  const auto scalars = Tensor<double, 1, Cpu>::uninitialized(shape(StepScalars::count), pool);
  scalars.data()[StepScalars::correction] = correction;
  scalars.data()[StepScalars::targets] = targets;
  ops::judge_step<Cpu>(pool, limits, &norm, scalars.data());
  const double* host = scalars.data();
  return {host[StepScalars::gradient_norm], host[StepScalars::gradient_scale],
          static_cast<StepVerdict>(static_cast<int>(host[StepScalars::verdict]))};
}

struct Subtract {
  template <class S>
  auto rule(const UpdateScalars&) const {
    return [](auto& block) {
      for (int k = 0; k < block.length; ++k) block.new_value[k] = block.value[k] - block.gradient[k];
    };
  }
  static constexpr int moment_count = 0;
};

}  // namespace

TEST_CASE("a step updates if its norm, unscaled, corrected and clipped, is within all limits") {
  const StepLimits limits{.loss_scale = 8, .clip_norm = 1, .largest_norm = 5, .largest_square = 9};
  const auto corrected = [](const StepLimits& of, double norm) { return judged(of, norm, 2); };
  CHECK(corrected(limits, 2).norm == 0.5);
  CHECK(corrected(limits, 2).scale == 0.25);
  CHECK(corrected(limits, 16).norm == 4);
  CHECK(corrected(limits, 16).scale == doctest::Approx(0.25 / 4).epsilon(1e-6));
  CHECK(corrected(limits, 16).verdict == StepVerdict::update);
  CHECK(corrected(limits, 20).verdict == StepVerdict::update);  // at the limit
  CHECK(corrected(limits, std::nextafter(20, 21)).verdict == StepVerdict::spike);
  StepLimits unclipped = limits;
  unclipped.clip_norm = 0;
  CHECK(corrected(unclipped, 12).verdict == StepVerdict::update);
  CHECK(corrected(unclipped, std::nextafter(12, 13)).verdict == StepVerdict::overflowing_square);
  CHECK(corrected(unclipped, 20.5).verdict == StepVerdict::spike);
  unclipped.largest_norm = unclipped.largest_square = 0;
  CHECK(corrected(unclipped, 1e300).verdict == StepVerdict::update);
}

TEST_CASE("a step without a target that counts does not update, whatever its norm is") {
  for (const double norm : {0.0, 1.0, infinite, not_a_number})
    for (const double targets : {0.0, -1.0, not_a_number})
      CHECK(judged({}, norm, 1, targets).verdict == StepVerdict::no_targets);
  CHECK(judged({}, 1, 1, 1e-9).verdict == StepVerdict::update);
}

TEST_CASE("a norm that is not finite passes no limit, and one of 0 only where it may") {
  for (const double norm : {infinite, -infinite, not_a_number})
    for (const double clip : {0.0, 1.0}) {
      CHECK(judged({.clip_norm = clip}, norm).verdict == StepVerdict::nonfinite);
      CHECK(judged({.clip_norm = clip, .largest_norm = 1}, norm).verdict == StepVerdict::nonfinite);
    }
  CHECK(judged({.loss_scale = 1e-300}, 1e300).verdict == StepVerdict::nonfinite);
  CHECK(judged({}, 0).verdict == StepVerdict::update);
  CHECK(judged({.zero_gradients = false}, 0).verdict == StepVerdict::zero_gradient);
}

TEST_CASE("an update reads its scale and its verdict in the device's memory") {
  Pool pool;
  const auto updated = [&](StepVerdict verdict) {
    float value = 10, gradient = 4;
    const double step[StepScalars::count] = {1, 0.25, static_cast<double>(verdict)};
    update_ranges<float, float, float, Cpu>(
        pool, Subtract{},
        [&](auto f) {
          f(FlatRange<float, float, float>{&gradient, &value, nullptr, {}, 1}, RangeSettings{});
        },
        UpdateScalars{}, step);
    return value;
  };
  CHECK(updated(StepVerdict::update) == 9);
  for (const auto verdict : {StepVerdict::nonfinite, StepVerdict::spike, StepVerdict::overflowing_square,
                             StepVerdict::zero_gradient, StepVerdict::no_targets})
    CHECK(updated(verdict) == 10);
}
