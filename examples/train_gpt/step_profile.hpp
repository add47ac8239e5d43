// SPDX-License-Identifier: Apache-2.0
/// The profile of a job's steps, where it asks for one.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>

#include <dspp/engine/profiling.hpp>

#include "job.hpp"

namespace train_gpt {

/// On every rank.
template <class Engine>
class StepProfile {
  static constexpr std::size_t most_events = 200'000;

 public:
  StepProfile(Engine& engine, const Job& job) : prints_(job.profile), trace_(job.trace) {
    if (job.profile || !job.trace.empty()) profiling_.emplace(engine, job.trace.empty() ? 0 : most_events);
  }

  /// Ends it, and returns the table of this rank if it is asked for, else the line of its communication.
  /// `planned_seconds(rates)` are those of a step of this rank.
  template <class Planned>
  std::string finish(Planned planned_seconds) {
    if (!profiling_) return {};
    profiling_->stop();
    const dspp::Rates rates = dspp::rates_of(profiling_->profile());
    const dspp::StepSeconds planned = rates.are_given() ? planned_seconds(rates) : dspp::StepSeconds{};
    if (planned.moving > 0) profiling_->set_planned_hidden(planned.hidden());
    const dspp::Profile profile = profiling_->profile();
    return prints_ ? profile.table() : profile.communication.line(profile.steps);
  }

  /// Writes the timeline, if it is asked for.
  void write_trace(bool says_so) {
    if (trace_.empty()) return;
    profiling_->write_trace(trace_);
    if (says_so) std::printf("the timeline is in %s: ui.perfetto.dev shows it\n", trace_.c_str());
  }

 private:
  bool prints_;
  std::string trace_;
  std::optional<dspp::Profiling<Engine>> profiling_;
};

}  // namespace train_gpt
