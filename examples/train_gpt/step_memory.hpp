// SPDX-License-Identifier: Apache-2.0
/// The blocks of a step of a job, where it asks for them.
#pragma once

#include <cstdio>
#include <string>

#include <dspp/observe/memory_map.hpp>
#include <dspp/observe/metrics.hpp>
#include <dspp/plan/timeline.hpp>

#include "job.hpp"

namespace train_gpt {

/// Of rank 0, of the second step of a run, which is as those that follow; of a run of one step, of that.
template <class Model>
class StepMemory {
 public:
  StepMemory(dspp::Pool& pool, const Job& job, bool is_first)
      : pool_(pool), job_(job), is_on_(is_first && !job.memory_map.empty()) {}

  void begin_step() {
    if (is_on_ && steps_ < noted_step) pool_.begin_timeline();
  }
  void end_step() {
    if (!is_on_ || steps_ == noted_step) return;
    measured_ = pool_.end_timeline();
    ++steps_;
  }

  /// Writes the file, if it is asked for. `options` are those of the plan, `before` the steps of a resumed training.
  ///
  /// Throws   Error(file)
  void write(const dspp::PlanOptions& options, Size before) const {
    if (steps_ == 0) return;
    const auto planned = dspp::plan_timeline<Model>(job_.model, job_.sizes(), options, steps_ - 1);
    dspp::write_text_file(job_.memory_map, dspp::memory_map(planned, measured_, 0, before + steps_));
    std::printf("the blocks of step %lld are in %s: planned peak %lld bytes, measured %lld\n",
                static_cast<long long>(before + steps_), job_.memory_map.c_str(),
                static_cast<long long>(planned.peak()), static_cast<long long>(measured_.peak()));
  }

 private:
  static constexpr Size noted_step = 2;

  dspp::Pool& pool_;
  const Job& job_;
  bool is_on_;
  Size steps_ = 0;
  dspp::MemoryTimeline measured_;
};

}  // namespace train_gpt
