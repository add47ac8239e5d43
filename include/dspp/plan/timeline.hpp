// SPDX-License-Identifier: Apache-2.0
/// The blocks of a training step on paper as data.
#pragma once

#include <utility>

#include <dspp/plan/plan.hpp>

namespace dspp {

/// The blocks that one rank's memory gives out in the step behind `steps_before` others, with the events at which they
/// are taken and given back: those that Pool::begin_timeline() and end_timeline() note around the same step of a run,
/// in the same order, but for places in the region, of which paper has none. 0: the first step, which checks the ranks;
/// 1: the first that lies in a region, unless Pool::lay_out_next gave the first one.
///
///   const MemoryTimeline planned = plan_timeline<Gpt<Mine>>(config, sizes, {.data = 2});
///
/// The batch is taken within the step and given back at its end, as where `engine.train_batch(new_batch())` is.
///
/// Cost   a plan at run time, and a plan's step for each step before
template <class Model, class Optimizer = AdamW, class Config>
MemoryTimeline plan_timeline(const Config& config, const BatchSizes& sizes, const PlanOptions& options = {},
                             Size steps_before = 1, Optimizer optimizer = {}) {
  detail::PaperRecording recording{.steps_before = steps_before};
  detail::plan_with<Model>(config, sizes, options, optimizer,
                           detail::planned_replica_config<typename Model::policy>(sizes, options), &recording);
  return std::move(recording.timeline);
}

}  // namespace dspp
