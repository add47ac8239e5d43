// SPDX-License-Identifier: Apache-2.0
/// The profile of a job's steps, where it asks for one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include <dspp/engine/profiling.hpp>

#include "job.hpp"

namespace train_gpt {

/// On every rank. A device that is not synchronous has its own profilers, and no job for it asks for this one.
template <class Engine>
class StepProfile {
  static constexpr bool has_one = dspp::DeviceOf<typename Engine::P>::synchronous;
  static constexpr std::size_t most_events = 200'000;

 public:
  StepProfile(Engine& engine, const Job& job) : trace_(job.trace) {
    if constexpr (has_one)
      if (job.profile || !job.trace.empty()) profiling_.emplace(engine, job.trace.empty() ? 0 : most_events);
  }

  /// Ends it: writes the timeline, and returns the table of this rank.
  std::string finish() {
    std::string table;
    if constexpr (has_one) {
      if (!profiling_) return table;
      table = profiling_->profile().table();
      if (!trace_.empty()) profiling_->write_trace(trace_);
      profiling_.reset();
    }
    return table;
  }

 private:
  std::string trace_;
  std::conditional_t<has_one, std::optional<dspp::Profiling<Engine>>, std::monostate> profiling_;
};

}  // namespace train_gpt
