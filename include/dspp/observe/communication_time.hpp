// SPDX-License-Identifier: Apache-2.0
/// How much of the time of a rank's communication was hidden behind its computation, measured and planned.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/json_writer.hpp>
#include <dspp/base/profiler.hpp>
#include <dspp/observe/overlap.hpp>

namespace dspp {

/// The seconds in which collectives with other ranks were under way, from the call that starts one to its completion,
/// each moment once. What is neither hidden nor exposed is the program's, between its operations.
///
/// Thread ranks, MPI and TCP move the data of the Cpu while a rank is in a collective's calls: there `exposed` is what
/// communication costs, and `hidden` saves nothing. It is the time beside kernels in which a transport could move data
/// that does so by itself, and is no share of the time that moving takes, as planned_hidden is.
struct CommunicationTime {
  double under_way = 0;
  double hidden = 0;                       ///< of it within kernels of this rank
  double exposed = 0;                      ///< of it within collectives: starts and waits
  std::optional<double> planned_hidden{};  ///< the share that a plan states, if one was asked

  bool is_none() const { return under_way <= 0; }
  /// Shares of under_way; 0 if there was no communication.
  double hidden_share() const { return is_none() ? 0 : hidden / under_way; }
  double exposed_share() const { return is_none() ? 0 : exposed / under_way; }

  /// One line with its end, of a step: "  communication under way 3.210 ms: 41.2 % beside kernels, 55.0 % waited for,
  /// 83.0 % hidden by the plan at these rates", or "  communication: none".
  std::string line(Size steps) const;
  /// Without shares if there was none.
  JsonObject json() const;
};

/// Until now.
CommunicationTime communication_time_of(const Profiler& profiler);

/// The share that was beside kernels in each step, as a counter in Chrome's trace format, of the events that are kept:
/// from the end of the step before to its own end. Each line ends with a comma; `offset` as in trace_lines().
std::string communication_counters(const Profiler& profiler, int rank, std::int64_t offset = 0);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE std::string fixed(double number, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, number);
  return text;
}

/// Nanoseconds as microseconds, which traces are in.
DSPP_INLINE std::string trace_time(double nanoseconds) {
  return fixed(nanoseconds * 1e-3, 3);
}

DSPP_INLINE Interval interval_of(const Profiler::Event& event) {
  return {static_cast<double>(event.begin), static_cast<double>(event.end)};
}

}  // namespace detail

DSPP_INLINE std::string CommunicationTime::line(Size steps) const {
  if (is_none()) return "  communication: none\n";
  const auto percent = [](double share) { return detail::fixed(100 * share, 1) + " % "; };
  std::string text = "  communication under way " +
                     detail::fixed(under_way * 1e3 / static_cast<double>(steps > 0 ? steps : 1), 3) +
                     " ms: " + percent(hidden_share()) + "beside kernels, " + percent(exposed_share()) + "waited for";
  if (planned_hidden) text += ", " + percent(*planned_hidden) + "hidden by the plan at these rates";
  return text + "\n";
}

DSPP_INLINE JsonObject CommunicationTime::json() const {
  JsonObject object;
  object.add("under_way_seconds", under_way).add("hidden_seconds", hidden).add("exposed_seconds", exposed);
  if (!is_none()) object.add("hidden_share", hidden_share()).add("exposed_share", exposed_share());
  if (planned_hidden) object.add("planned_hidden_share", *planned_hidden);
  return object;
}

DSPP_INLINE CommunicationTime communication_time_of(const Profiler& profiler) {
  const Profiler::Communication sum = profiler.communication();
  const auto seconds = [](std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
  return {seconds(sum.under_way), seconds(sum.hidden), seconds(sum.exposed), {}};
}

DSPP_INLINE std::string communication_counters(const Profiler& profiler, int rank, std::int64_t offset) {
  std::vector<Interval> flights, kernels, steps;
  for (const Profiler::Event& flight : profiler.flights()) flights.push_back(detail::interval_of(flight));
  double last_end = 0;
  for (const Profiler::Event& event : profiler.events()) {
    const Profiler::Row& row = profiler.rows()[static_cast<std::size_t>(event.row)];
    const bool is_step =
        row.kind == Profiler::Kind::range && profiler.ranges()[static_cast<std::size_t>(row.range)].what == "step";
    if (row.kind == Profiler::Kind::kernel) kernels.push_back(detail::interval_of(event));
    if (is_step) steps.push_back({last_end, detail::interval_of(event).end}), last_end = steps.back().end;
  }
  const std::vector<Interval> moving = union_of(std::move(flights));
  const std::vector<Interval> hidden = intersection_of(moving, union_of(std::move(kernels)));
  std::string text;
  for (const Interval& step : steps) {
    const double under_way = length_within(moving, step);
    if (under_way <= 0) continue;
    text += R"({"ph":"C","name":"communication beside kernels, rank )" + std::to_string(rank) + R"(","pid":0,"ts":)" +
            detail::trace_time(step.begin + static_cast<double>(offset)) + R"(,"args":{"percent":)" +
            detail::fixed(100 * length_within(hidden, step) / under_way, 2) + "}},\n";
  }
  return text;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
