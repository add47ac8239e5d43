// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <dspp/observe/communication_time.hpp>

#include <laws/json_tree.hpp>

using namespace dspp;

namespace {

/// Some time passes.
void spend(const Profiler& profiler) {
  const std::int64_t begin = profiler.now();
  while (profiler.now() < begin + 20'000) {
  }
}
void compute(Profiler& profiler) {
  const ProfiledKernel kernel(&profiler, "zero");
  spend(profiler);
}
Profiler::Event start(Profiler& profiler) {
  profiler.begin_collective("all_reduce", "gradient", false);
  spend(profiler);
  const Profiler::Event flight = profiler.begin_flight();
  profiler.end_collective(8);
  return flight;
}
void wait(Profiler& profiler, const Profiler::Event& flight) {
  profiler.begin_collective("all_reduce", "gradient", false);
  spend(profiler);
  profiler.end_collective(0, false);
  profiler.end_flight(flight);
}

/// Two steps with kernels before, beside, between and after collectives, and a third without any.
void tell(Profiler& profiler) {
  for (int step = 0; step < 3; ++step) {
    compute(profiler);
    std::vector<Profiler::Event> flights;
    for (int i = 0; step < 2 && i < 2 + step; ++i) {
      flights.push_back(start(profiler));
      compute(profiler);
    }
    for (const Profiler::Event& flight : flights) {
      wait(profiler, flight);
      if (step == 1) compute(profiler);
    }
    const std::uint64_t range = profiler.begin_range("step", "");
    compute(profiler);
    profiler.end_range(range);
  }
}

OverlapTime overlap_of_events(const Profiler& profiler, Profiler::Kind kind) {
  std::vector<Interval> flights, others;
  for (const auto& event : profiler.flights())
    flights.push_back({static_cast<double>(event.begin), static_cast<double>(event.end)});
  for (const auto& event : profiler.events())
    if (profiler.rows()[static_cast<std::size_t>(event.row)].kind == kind)
      others.push_back({static_cast<double>(event.begin), static_cast<double>(event.end)});
  return overlap_of(flights, others);
}

}  // namespace

TEST_CASE("what a profiler sums up as it goes is the overlap of its events") {
  Profiler profiler(1000), without_events;
  tell(profiler), tell(without_events);
  const Profiler::Communication sum = profiler.communication();
  const OverlapTime kernels = overlap_of_events(profiler, Profiler::Kind::kernel);
  CHECK(static_cast<double>(sum.under_way) == kernels.under_way);
  CHECK(static_cast<double>(sum.hidden) == kernels.hidden);
  CHECK(static_cast<double>(sum.exposed) == overlap_of_events(profiler, Profiler::Kind::collective).hidden);
  CHECK(sum.hidden >= 7 * 20'000);
  CHECK(sum.exposed >= 10 * 20'000);
  CHECK(sum.hidden + sum.exposed <= sum.under_way);
  CHECK(without_events.flights().empty());
  CHECK(without_events.communication().hidden >= 7 * 20'000);
  const CommunicationTime time = communication_time_of(profiler);
  CHECK(time.hidden_share() == doctest::Approx(kernels.hidden / kernels.under_way));
}

TEST_CASE("the counter has a value for each step with communication, of what was hidden in it") {
  Profiler profiler(1000);
  tell(profiler);
  const std::string lines = communication_counters(profiler, 4, 1'000'000);
  const laws::JsonTree tree = laws::json_tree("[" + lines + "0]", "the counters");
  REQUIRE(tree.items.size() == 3);
  std::vector<Interval> flights, kernels;
  double first_end = 0;
  for (const auto& event : profiler.events()) {
    const Profiler::Row& row = profiler.rows()[static_cast<std::size_t>(event.row)];
    if (row.kind == Profiler::Kind::range && first_end == 0) first_end = static_cast<double>(event.end);
  }
  for (const auto& flight : profiler.flights()) {
    if (static_cast<double>(flight.begin) >= first_end) continue;
    flights.push_back({static_cast<double>(flight.begin), static_cast<double>(flight.end)});
  }
  for (const auto& event : profiler.events())
    if (profiler.rows()[static_cast<std::size_t>(event.row)].kind == Profiler::Kind::kernel)
      kernels.push_back({static_cast<double>(event.begin), static_cast<double>(event.end)});
  const OverlapTime first = overlap_of(flights, kernels);
  CHECK(tree.items[0].find("name")->string == "communication beside kernels, rank 4");
  CHECK(tree.items[0].find("ts")->real == 1000);
  CHECK(tree.items[0].find("args")->find("percent")->real ==
        doctest::Approx(100 * first.hidden / first.under_way).epsilon(1e-3));
  CHECK(tree.items[1].find("ts")->real == doctest::Approx(1000 + first_end / 1000));
}

TEST_CASE("a line and an object have shares where there was communication, and no number that is none") {
  const CommunicationTime none;
  CHECK(none.line(0) == "  communication: none\n");
  CHECK(none.json().text() == R"({"under_way_seconds":0,"hidden_seconds":0,"exposed_seconds":0})");
  CHECK(none.hidden_share() == 0);
  CHECK(none.exposed_share() == 0);
  CommunicationTime some{.under_way = 4, .hidden = 1, .exposed = 2.5};
  CHECK(some.line(2) == "  communication under way 2000.000 ms: 25.0 % beside kernels, 62.5 % waited for\n");
  some.planned_hidden = 0.8;
  CHECK(some.line(2) ==
        "  communication under way 2000.000 ms: 25.0 % beside kernels, 62.5 % waited for, 80.0 % hidden by the plan at "
        "these rates\n");
  CHECK(some.json().text() ==
        R"({"under_way_seconds":4,"hidden_seconds":1,"exposed_seconds":2.5,"hidden_share":0.25,"exposed_share":0.625,)"
        R"("planned_hidden_share":0.8})");
}
