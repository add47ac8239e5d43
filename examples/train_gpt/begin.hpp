// SPDX-License-Identifier: Apache-2.0
/// What a training begins with: values of its own, weights, or a state that it goes on from; and saving that state.
#pragma once

#include <cstdint>
#include <string>

#include <dspp/engine/checkpoint.hpp>
#include <dspp/engine/training_state.hpp>
#include <dspp/io/state_folder.hpp>

#include "job.hpp"
#include "waves.hpp"

namespace train_gpt {

/// Where a training stands in its data and in its schedule.
struct Start {
  Size data_step = 0;      ///< of the first batch of the schedule's first step
  Size taken = 0;          ///< steps of the schedule, those that were skipped included
  Size skipped = 0;        ///< of them
  std::uint64_t seed = 0;  ///< of the data
};

/// A folder of weights, or the newest state in a folder of states.
inline std::string weights_in(const std::string& folder) {
  const dspp::StateFolder states{folder};
  return states.has_latest() ? states.state(states.read_latest()) : folder;
}

/// Fills the engine as the job says. Call on every rank.
///
/// Throws   Error(file), a sentence
template <class Engine>
Start begin(Engine& engine, const Job& job) {
  if (!job.resume.empty()) {
    const dspp::Resumed state = dspp::load_checkpoint(engine, job.resume);
    const auto first = state.client_state.find("first_data_step");
    Start start{.skipped = engine.skipped_steps(), .seed = state.position.seed};
    if (first != state.client_state.end()) start.data_step = std::stoll(first->second);
    start.taken = state.position.next_step - start.data_step;
    return start;
  }
  if (job.load.empty())
    dspp::set_parameter(engine, "positions.weight", waves(job.model.sequence, job.model.width, 0.1));
  else
    dspp::load_weights(engine, weights_in(job.load));
  return {.data_step = engine.steps(), .seed = engine.world().seed()};
}

/// Saves the state after step `taken` of the schedule. Call on every rank.
template <class Engine>
void save(Engine& engine, const Job& job, const Start& start, Size taken) {
  dspp::save_checkpoint(engine, job.save,
                        {.position = {.next_step = start.data_step + taken, .seed = start.seed},
                         .client_state = {{"first_data_step", std::to_string(start.data_step)}},
                         .keep = 2});
}

}  // namespace train_gpt
