// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/optim/loss_scale.hpp>

using namespace dspp;

namespace {

std::vector<double> values_after(LossScale scale, const std::vector<bool>& overflows) {
  std::vector<double> values;
  for (const bool overflow : overflows) {
    scale.update(overflow);
    values.push_back(scale.value());
  }
  return values;
}

/// A second implementation of DeepSpeed's rule: from the whole history to the next scale; nothing where it raises.
std::optional<double> told_scale(const LossScaleConfig& c, const std::vector<bool>& overflows) {
  double scale = c.initial;
  Size cur_iter = 0, last_overflow = -1, cur_hyst = c.hysteresis;
  const Size delayed_shift = c.hysteresis;
  for (const bool overflow : overflows) {
    if (overflow) {
      if (delayed_shift == 1 || cur_hyst == 1) {
        if (scale == c.minimum) return std::nullopt;
        scale = std::max(scale / 2, c.minimum);
      } else {
        cur_hyst -= 1;
      }
      last_overflow = cur_iter;
    } else {
      if (c.consecutive_hysteresis) cur_hyst = delayed_shift;
      const Size stable = (cur_iter - last_overflow) - 1;
      if (stable > 0 && stable % c.window == 0) {
        if (!c.consecutive_hysteresis) cur_hyst = delayed_shift;
        scale *= 2;
      }
    }
    cur_iter += 1;
  }
  return scale;
}

constexpr double after_two_overflows() {
  LossScale scale{LossScaleConfig{}};
  scale.update(true);
  scale.update(true);
  return scale.value();
}
static_assert(after_two_overflows() == 32768);

}  // namespace

TEST_CASE("five overflows in a row give 65536, 32768, 16384, 8192, 4096: the first only uses up the hysteresis") {
  CHECK(values_after(LossScale(LossScaleConfig{}), {true, true, true, true, true}) ==
        std::vector<double>{65536, 32768, 16384, 8192, 4096});
}

TEST_CASE("E2: DeepSpeed's own vectors: all overflow, none does, and some do") {
  const LossScaleConfig config{.initial = 256, .window = 2, .hysteresis = 1};
  CHECK(values_after(LossScale(config), std::vector<bool>(8, true)) ==
        std::vector<double>{128, 64, 32, 16, 8, 4, 2, 1});
  CHECK(values_after(LossScale(config), std::vector<bool>(10, false)) ==
        std::vector<double>{256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096});
  CHECK(values_after(LossScale(config), {true, true, false, false, false, true, false}) ==
        std::vector<double>{128, 64, 64, 64, 128, 64, 64});
}

TEST_CASE("from a fresh start the scale doubles on the 1001st step without overflow, and every 1000 after it") {
  const auto values = values_after(LossScale(LossScaleConfig{}), std::vector<bool>(3002, false));
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == 65536 * std::exp2(i / 1000));
}

TEST_CASE("an overflow at the minimum is an error that names it, says what to do and changes nothing") {
  LossScale scale(LossScaleConfig{.initial = 2});
  scale.update(true);
  scale.update(true);
  CHECK(scale.value() == 1);
  for (int again : {1, 2}) {
    CAPTURE(again);
    try {
      scale.update(true);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::state);
      const std::string said = error.what();
      CHECK(said.find("at the minimum of 1.0") != std::string::npos);
      CHECK(said.find("in update 3 of the scale") != std::string::npos);
      CHECK(said.find("Lower the learning rate") != std::string::npos);
    }
    CHECK(scale.value() == 1);
  }
}

TEST_CASE("in 10,000 random sequences the scale equals a second implementation of DeepSpeed's rule, errors included") {
  std::mt19937 random(20);
  const auto draw = [&](Size least, Size most) { return std::uniform_int_distribution<Size>(least, most)(random); };
  int errors = 0, doublings = 0;
  for (int sequence = 0; sequence < 10'000; ++sequence) {
    const LossScaleConfig config{.initial = std::exp2(draw(0, 16)),
                                 .window = draw(1, 12),
                                 .minimum = draw(0, 3) ? 1 : 0.25,
                                 .hysteresis = draw(1, 4),
                                 .consecutive_hysteresis = draw(0, 1) == 1};
    const double often = std::exp2(-static_cast<double>(draw(1, 5)));
    LossScale scale(config);
    std::vector<bool> overflows;
    for (int update = 0; update < 60; ++update) {
      overflows.push_back(std::bernoulli_distribution(often)(random));
      const auto told = told_scale(config, overflows);
      if (!told) {
        REQUIRE_THROWS_AS(scale.update(true), Error);
        ++errors;
        break;
      }
      doublings += *told > scale.value();
      scale.update(overflows.back());
      REQUIRE(scale.value() == *told);
    }
  }
  CHECK(errors > 500);
  CHECK(doublings > 5000);
}

TEST_CASE("a scale restored from another's state continues identically, from any update") {
  const LossScaleConfig config{.initial = 256, .window = 3, .hysteresis = 3};
  std::mt19937 random(4);
  LossScale whole(config);
  for (int update = 0; update < 300; ++update) {
    LossScale other(config);
    other.set_state(whole.state());
    std::mt19937 same = random;
    LossScale ahead = whole;
    for (int next = 0; next < 12; ++next) {
      const bool overflow = same() % 4 == 0 && ahead.value() > 1;
      ahead.update(overflow);
      other.update(overflow);
      REQUIRE(other.value() == ahead.value());
    }
    whole.update(random() % 4 == 0 && whole.value() > 1);
  }
  CHECK(whole.value() != 256);
}

TEST_CASE("a state outside the configuration's bounds is clamped") {
  LossScale scale(LossScaleConfig{.initial = 1024, .minimum = 256, .hysteresis = 2});
  scale.set_state({.value = 4, .updates = 9, .last_overflow = 3, .hysteresis = 5});
  CHECK(scale.value() == 256);
  CHECK(scale.state().hysteresis == 2);
  CHECK(scale.state().updates == 9);
  CHECK(scale.state().last_overflow == 3);
  scale.update(true);
  CHECK_THROWS_AS(scale.update(true), Error);  // it is at the minimum, and none of the hysteresis is left
  CHECK(scale.value() == 256);
  scale.set_state({.value = 512, .hysteresis = 0});
  CHECK(scale.value() == 512);
  CHECK(scale.state().hysteresis == 1);
  scale.update(true);
  CHECK(scale.value() == 256);
}

TEST_CASE("a static scale is constant under any overflow") {
  LossScale scale(LossScaleConfig{.fixed = 128});
  CHECK(!scale.dynamic());
  for (int i = 0; i < 3000; ++i) scale.update(i < 100);
  CHECK(scale.value() == 128);
  CHECK(LossScale().value() == 1);
}

TEST_CASE("an invalid configuration is refused") {
  for (const LossScaleConfig& wrong :
       {LossScaleConfig{.fixed = -1}, LossScaleConfig{.fixed = std::nan("")}, LossScaleConfig{.initial = 0.5},
        LossScaleConfig{.initial = INFINITY}, LossScaleConfig{.window = 0}, LossScaleConfig{.minimum = 0},
        LossScaleConfig{.hysteresis = 0}})
    CHECK_THROWS_AS(LossScale{wrong}, Error);
}
