// SPDX-License-Identifier: Apache-2.0
// The learning rate of train_gpt over taken and skipped steps. labels: examples
#include <doctest/doctest.h>

#include <vector>

#include <dspp/comm/self.hpp>

#include "../../examples/train_gpt/pace.hpp"

using namespace dspp;
using train_gpt::Job;
using train_gpt::Pace;

namespace {

/// The rate of every step of a job; `skips(step)` selects the steps that overflow.
template <class Skips>
std::vector<double> rates_of(const Job& job, Skips skips, Size taken = 0, Size skipped = 0) {
  const Interrupt interrupt;
  Self all;
  std::vector<double> rates;
  for (Pace pace(job, interrupt, all, taken, skipped); !pace.over();) {
    rates.push_back(pace.learning_rate());
    pace.end_step(1, skips(pace.step()), all);
  }
  return rates;
}

Job job_of(Size steps) {
  Job job;
  job.lr = 0.01;
  job.steps = steps;
  job.by_time = false;
  return job;
}

}  // namespace

TEST_CASE("the rate rises over a tenth of the steps, at most 60, and falls to one step before zero") {
  for (const auto& [steps, warmup] : {std::pair<std::size_t, std::size_t>{50, 5}, {1000, 60}}) {
    const auto rates = rates_of(job_of(static_cast<Size>(steps)), [](Size) { return false; });
    REQUIRE(rates.size() == steps);
    for (std::size_t i = 1; i < steps; ++i) CHECK((rates[i] > rates[i - 1]) == (i < warmup));
    CHECK(rates[warmup - 1] == 0.01);
    CHECK(rates.back() == doctest::Approx(0.01 / static_cast<double>(steps + 1 - warmup)));
  }
}

TEST_CASE("a skipped step does not change the rate, in any bit, during warm-up and decay") {
  const Job job = job_of(100);
  const auto smooth = rates_of(job, [](Size) { return false; });
  const auto skips = [](Size step) { return step < 2 || step == 5 || step == 40 || step == 41 || step == 99; };
  const auto rates = rates_of(job, skips);
  REQUIRE(rates.size() == smooth.size());
  std::size_t taken = 0;
  for (Size step = 0; step < std::ssize(rates); ++step) {
    CHECK(rates[static_cast<std::size_t>(step)] == smooth[taken]);
    if (!skips(step)) ++taken;
  }
  CHECK(taken == 94);
}

TEST_CASE("a job resumed after skipped steps continues at the rate at which it stopped") {
  const Job job = job_of(100);
  const auto skips = [](Size step) { return step == 3 || step == 50; };
  const auto whole = rates_of(job, skips), rest = rates_of(job, skips, 60, 2);
  CHECK(rest == std::vector<double>(whole.begin() + 60, whole.end()));
}

TEST_CASE("the time left of a resumed job is estimated from the steps of this run") {
  const Job job = job_of(100);
  const Interrupt interrupt;
  Self all;
  Pace pace(job, interrupt, all, 90);
  CHECK(pace.seconds_left() == 0);  // not known yet
  pace.end_step(1, false, all);
  CHECK(pace.seconds_left() == doctest::Approx(9 * pace.seconds()));
}
