// SPDX-License-Identifier: Apache-2.0
// Every schedule has the rates of DeepSpeed's formulas, as tests/golden/make_optim_golden.py restates them.
// labels: golden
#include <string>

#include <doctest/doctest.h>

#include <dspp/io/safetensors.hpp>
#include <dspp/optim/schedule.hpp>

#include <laws/difference.hpp>

using namespace dspp;

namespace {

/// Checks f(-1), f(0), ... against the row of that name.
void check_row(const std::string& name, const auto& f) {
  CAPTURE(name);
  io::SafetensorsReader file{DSPP_TESTS_DIRECTORY "/golden/optim_expected.safetensors"};
  const io::TensorEntry& entry = file.tensor("schedule." + name);
  std::vector<double> expected(static_cast<std::size_t>(entry.shape[0])), got;
  REQUIRE(expected.size() == 42);
  file.read(entry, 0, entry.shape[0], expected.data());
  for (Size i = -1; got.size() < expected.size(); ++i) got.push_back(f(i));
  CHECK(laws::worst_difference(got, expected) < 1e-15);
}

}  // namespace

TEST_CASE("OneCycle cycles the rate up and the momentum down, by stairs or not, and decays") {
  constexpr OneCycle even{.min_lr = 0.1, .max_lr = 0.5, .first_steps = 7};
  check_row("one_cycle", even);
  check_row("one_cycle.momentum", [&](Size i) { return even.momentum(i); });
  constexpr OneCycle uneven{.min_lr = 0.1,
                            .max_lr = 0.5,
                            .first_steps = 7,
                            .second_steps = 12,
                            .decay_steps = 3,
                            .decay_rate = 0.25,
                            .min_momentum = 0.7,
                            .max_momentum = 0.95,
                            .momentum_decay_rate = 0.01};
  check_row("one_cycle_decay", uneven);
  check_row("one_cycle_decay.momentum", [&](Size i) { return uneven.momentum(i); });
  check_row(
      "one_cycle_stairs",
      OneCycle{
          .min_lr = 0.1, .max_lr = 0.5, .first_steps = 7, .second_steps = 12, .first_stairs = 3, .second_stairs = 5});
}

TEST_CASE("LRRangeTest rises from its smallest rate, steadily or by stairs") {
  check_row("range_test", LRRangeTest{.min_lr = 0.01, .step_size = 6, .step_rate = 2.5});
  check_row("range_test_staircase", LRRangeTest{.min_lr = 0.01, .step_size = 6, .step_rate = 2.5, .staircase = true});
}

TEST_CASE("the warm-ups have DeepSpeed's rates at every step") {
  check_row("warmup", WarmupLR{.min_lr = 0.1, .max_lr = 0.5, .warmup_steps = 9});
  check_row("warmup_linear", WarmupLR{.min_lr = 0.1, .max_lr = 0.5, .warmup_steps = 9, .type = Warmup::linear});
  check_row("warmup_decay", WarmupDecayLR{.total_steps = 33, .min_lr = 0.1, .max_lr = 0.5, .warmup_steps = 9});
  check_row(
      "warmup_cosine",
      WarmupCosineLR{.lr = 0.5, .total_steps = 33, .warmup_min_ratio = 0.2, .warmup_steps = 9, .cos_min_ratio = 0.1});
}
