// SPDX-License-Identifier: Apache-2.0
/// How much of the time of some work others run beside: sets of intervals.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>

namespace dspp {

/// From `begin` to `end`, of any unit; empty unless it ends after it begins.
struct Interval {
  double begin = 0, end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// The times that any of them has: apart from one another, in order.
///
/// Cost   a sort
std::vector<Interval> union_of(std::vector<Interval> intervals);

/// The times that both have, of two unions.
///
/// Cost   linear
std::vector<Interval> intersection_of(const std::vector<Interval>& a, const std::vector<Interval>& b);

/// The time of a union within `window`.
///
/// Cost   logarithmic, and linear in the intervals there
double length_within(const std::vector<Interval>& times, const Interval& window);

/// The time of a union.
double length_of(const std::vector<Interval>& times);

/// Each moment once.
struct OverlapTime {
  double under_way = 0;  ///< of the time in which communication was
  double hidden = 0;     ///< of it beside computation

  double exposed() const { return under_way - hidden; }
  friend bool operator==(const OverlapTime&, const OverlapTime&) = default;
};

/// Of intervals in any order, which may overlap, such as those of a stream of collectives and of a stream of kernels.
OverlapTime overlap_of(std::vector<Interval> communication, std::vector<Interval> computation);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::vector<Interval> union_of(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& one) { return !(one.begin < one.end); });
  std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<Interval> times;
  for (const Interval& one : intervals) {
    if (times.empty() || times.back().end < one.begin)
      times.push_back(one);
    else
      times.back().end = std::max(times.back().end, one.end);
  }
  return times;
}

DSPP_INLINE std::vector<Interval> intersection_of(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> times;
  for (auto of_a = a.begin(), of_b = b.begin(); of_a != a.end() && of_b != b.end();) {
    const Interval both{std::max(of_a->begin, of_b->begin), std::min(of_a->end, of_b->end)};
    if (both.begin < both.end) times.push_back(both);
    ++(of_a->end < of_b->end ? of_a : of_b);
  }
  return times;
}

DSPP_INLINE double length_within(const std::vector<Interval>& times, const Interval& window) {
  auto next = std::lower_bound(times.begin(), times.end(), window.begin,
                               [](const Interval& one, double at) { return one.end <= at; });
  double length = 0;
  for (; next != times.end() && next->begin < window.end; ++next)
    length += std::max(0.0, std::min(next->end, window.end) - std::max(next->begin, window.begin));
  return length;
}

DSPP_INLINE double length_of(const std::vector<Interval>& times) {
  double length = 0;
  for (const Interval& one : times) length += one.end - one.begin;
  return length;
}

DSPP_INLINE OverlapTime overlap_of(std::vector<Interval> communication, std::vector<Interval> computation) {
  const std::vector<Interval> moving = union_of(std::move(communication));
  return {length_of(moving), length_of(intersection_of(moving, union_of(std::move(computation))))};
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
