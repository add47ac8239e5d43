// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <doctest/doctest.h>

#include <dspp/optim/schedule.hpp>

using namespace dspp;

TEST_CASE("WarmupLR rises with the logarithm from 0 to its maximum and stays there") {
  constexpr WarmupLR schedule{.max_lr = 0.5};
  CHECK(schedule(-1) == 0.0);
  CHECK(schedule(0) == 0.0);
  CHECK(schedule(9) == doctest::Approx(0.5 / 3).epsilon(1e-14));       // log 10 / log 1000
  CHECK(schedule(99) == doctest::Approx(0.5 * 2 / 3).epsilon(1e-14));  // log 100 / log 1000
  CHECK(schedule(999) == doctest::Approx(0.5).epsilon(1e-14));
  CHECK(schedule(1000) == 0.5);
  CHECK(schedule(1000000) == 0.5);
}

TEST_CASE("WarmupLR rises linearly from its minimum with Warmup::linear") {
  constexpr WarmupLR schedule{.min_lr = 1, .max_lr = 3, .warmup_steps = 10, .type = Warmup::linear};
  CHECK(schedule(0) == 1.0);
  CHECK(schedule(5) == 2.0);
  CHECK(schedule(9) == doctest::Approx(2.8).epsilon(1e-14));
  CHECK(schedule(10) == 3.0);
}

TEST_CASE("a warmup has at least two steps") {
  constexpr WarmupLR schedule{.max_lr = 1, .warmup_steps = 0};
  CHECK(schedule(0) == 0.0);
  CHECK(schedule(1) == 1.0);  // log 2 / log 2
  CHECK(schedule(2) == 1.0);
}

TEST_CASE("WarmupDecayLR falls linearly to its minimum at the last step") {
  constexpr WarmupDecayLR schedule{
      .total_steps = 110, .min_lr = 1, .max_lr = 2, .warmup_steps = 10, .type = Warmup::linear};
  CHECK(schedule(5) == 1.5);
  CHECK(schedule(10) == 2.0);
  CHECK(schedule(60) == 1.5);
  CHECK(schedule(110) == 1.0);
  CHECK(schedule(500) == 1.0);
}

TEST_CASE("WarmupDecayLR divides by at least one step") {
  constexpr WarmupDecayLR schedule{.total_steps = 10, .max_lr = 2, .warmup_steps = 10};
  CHECK(schedule(10) == 0.0);
}

TEST_CASE("WarmupCosineLR falls half a cosine to its smallest ratio") {
  constexpr WarmupCosineLR schedule{
      .lr = 2, .total_steps = 110, .warmup_steps = 10, .cos_min_ratio = 0.1, .type = Warmup::linear};
  CHECK(schedule(-1) == 0.0);
  CHECK(schedule(0) == 0.0);
  CHECK(schedule(5) == 1.0);
  // The first step after the warmup is already one step down, as in DeepSpeed.
  CHECK(schedule(10) == doctest::Approx(2 * (0.1 + 0.9 * (1 + std::cos(std::acos(-1.0) / 100)) / 2)).epsilon(1e-14));
  CHECK(schedule(59) == doctest::Approx(2 * (0.1 + 0.45)).epsilon(1e-14));
  CHECK(schedule(109) == doctest::Approx(0.2).epsilon(1e-14));
  CHECK(schedule(1000) == doctest::Approx(0.2).epsilon(1e-14));
}

TEST_CASE("WarmupCosineLR starts from its first ratio") {
  constexpr WarmupCosineLR schedule{
      .lr = 1, .total_steps = 100, .warmup_min_ratio = 0.5, .warmup_steps = 10, .type = Warmup::linear};
  CHECK(schedule(0) == 0.5);
  CHECK(schedule(5) == 0.75);
}

TEST_CASE("ConstantLR is constant") {
  CHECK(ConstantLR{.lr = 0.1}(0) == 0.1);
  CHECK(ConstantLR{.lr = 0.1}(1000) == 0.1);
}
