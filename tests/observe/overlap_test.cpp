// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <vector>

#include <dspp/observe/overlap.hpp>

using namespace dspp;

namespace {

constexpr int end_of_time = 40;
using Moments = std::array<bool, end_of_time>;

/// The whole moments that any of them has.
Moments moments_of(const std::vector<Interval>& intervals) {
  Moments moments{};
  for (const Interval& one : intervals)
    for (int t = 0; t < end_of_time; ++t) moments[static_cast<std::size_t>(t)] |= one.begin <= t && t < one.end;
  return moments;
}

/// By them, moment for moment.
OverlapTime counted(const std::vector<Interval>& communication, const std::vector<Interval>& computation) {
  const Moments moves = moments_of(communication), computes = moments_of(computation);
  OverlapTime overlap;
  for (std::size_t t = 0; t < moves.size(); ++t) {
    overlap.under_way += moves[t];
    overlap.hidden += moves[t] && computes[t];
  }
  return overlap;
}

double counted_within(const std::vector<Interval>& times, const Interval& window) {
  return counted(times, {window}).hidden;
}

}  // namespace

TEST_CASE("an overlap is what is counted moment for moment, whatever overlaps, touches, is nested or is empty") {
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int run = 0; run < 400; ++run) {
    CAPTURE(run);
    const auto intervals = [&] {
      std::vector<Interval> list(static_cast<std::size_t>(below(9)));
      for (Interval& one : list) {
        one.begin = below(end_of_time);
        one.end = std::min(end_of_time, static_cast<int>(one.begin) + below(run % 2 ? 12 : 4) - below(2));
      }
      return list;
    };
    const std::vector<Interval> communication = intervals(), computation = intervals();
    CHECK(overlap_of(communication, computation) == counted(communication, computation));
    const std::vector<Interval> times = union_of(communication);
    for (std::size_t i = 0; i < times.size(); ++i) {
      CHECK(times[i].begin < times[i].end);
      CHECK((i == 0 || times[i - 1].end < times[i].begin));
    }
    CHECK(moments_of(times) == moments_of(communication));
    const Interval window{static_cast<double>(below(end_of_time)), static_cast<double>(below(end_of_time))};
    CHECK(length_within(times, window) == counted_within(times, window));
    CHECK(length_within(times, {0, end_of_time}) == length_of(times));
  }
}

TEST_CASE("of nothing the overlap is nothing") {
  CHECK(overlap_of({}, {}) == OverlapTime{});
  CHECK(overlap_of({}, {{0, 5}}) == OverlapTime{});
  CHECK(overlap_of({{3, 3}, {7, 2}}, {{0, 9}}) == OverlapTime{});
  CHECK(length_within({}, {0, 1}) == 0);
  const OverlapTime alone = overlap_of({{1, 3}}, {});
  CHECK(alone.under_way == 2);
  CHECK(alone.hidden == 0);
  CHECK(alone.exposed() == 2);
}

TEST_CASE("moments count once, and those that touch are one interval") {
  CHECK(overlap_of({{0, 4}, {1, 2}, {3, 6}}, {{2, 3}, {2, 5}}) == OverlapTime{6, 3});
  CHECK(overlap_of({{0, 2}}, {{2, 4}}) == OverlapTime{2, 0});
  CHECK(union_of({{2, 3}, {0, 2}, {5, 5}}) == std::vector<Interval>{{0, 3}});
}
