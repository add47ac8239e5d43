// SPDX-License-Identifier: Apache-2.0
/// The start of a run: initial values, weights or a checkpoint to resume from; and saving checkpoints.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include <dspp/checkpoint/checkpoint.hpp>
#include <dspp/checkpoint/training_state.hpp>
#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/json_text.hpp>

#include "job.hpp"
#include "source.hpp"
#include "waves.hpp"

namespace train_gpt {

/// A run's position in its data and in its schedule.
struct Start {
  std::map<std::string, std::string> data;  ///< the identity of the data: Source::facts()
  Size data_step = 0;                       ///< of the first batch of the schedule's first step
  Size next_sample = 0;                     ///< of a stream, whatever the global batch was
  Size taken = 0;                           ///< steps of the schedule, skipped steps included
  Size skipped = 0;                         ///< of them
  std::uint64_t seed = 0;                   ///< of the data
};

/// A folder of weights, or the newest checkpoint in a folder of checkpoints.
inline std::string weights_in(const std::string& folder) {
  const dspp::io::CheckpointFolder checkpoints{folder};
  return checkpoints.has_latest() ? checkpoints.path_of(checkpoints.read_latest()) : folder;
}

/// What is held out of the text of the training that a job resumes: checkpoints of before this choice name nothing, and
/// held out the end. A checkpoint that cannot be read is refused when it is loaded.
inline dspp::data::TextSplit split_of_resumed(const std::string& folder) {
  using dspp::data::TextSplit;
  try {
    const auto manifest = dspp::io::read_checkpoint_manifest(weights_in(folder) + "/state.json");
    const auto facts = manifest.training().find("client_state");
    const auto rule = facts ? facts->find("held_out") : std::nullopt;
    return rule && rule->string == held_out_name(TextSplit::blocks) ? TextSplit::blocks : TextSplit::end;
  } catch (const dspp::Error&) {
    return TextSplit::blocks;
  }
}

/// Refuses to resume a run on other data. A checkpoint without a data identity is of a text. Another text, which may be
/// the old one with additions, is only a warning, which is returned.
///
/// Throws   Error(file)
inline std::string check_data(const dspp::Resumed& checkpoint, const Source& source) {
  const auto before = [&](const char* key, const char* otherwise) {
    const auto found = checkpoint.client_state.find(key);
    return found != checkpoint.client_state.end() ? found->second : std::string(otherwise);
  };
  if (before("data", "text") != source.identity()) {
    const std::string was = before("tokens_path", ""), now_at = source.fact("tokens_path");
    const auto called = [](const std::string& path) {
      return path.empty() ? std::string("a text") : "the token files of '" + path + "'";
    };
    dspp::fail(dspp::ErrorCode::file, "dspp: --resume needs the data that its training is on, " + called(was) +
                                          ", but got " + (was == now_at ? "others of that name" : called(now_at)) +
                                          ". Name that data, or begin with its weights by --load.");
  }
  const auto& now = source.facts();
  const std::string was = before("text", "");
  if (was.empty() || was == source.fact("text")) return {};
  return "dspp: warning: --resume needs the text of its training for the batches that come next, '" +
         before("text_path", "?") + "' of " + was + ", but got '" + now.at("text_path") + "' of " + now.at("text") +
         ". If this one is not meant, stop and name that by --data.";
}

/// Loads the engine as the job says. Call on every rank.
///
/// Throws   Error(file)
template <class Engine>
Start begin(Engine& engine, const Job& job, const Source& source) {
  if (!job.save.empty()) dspp::lock_checkpoint_folder(engine, job.save);
  if (!job.resume.empty()) {
    const dspp::Resumed checkpoint = dspp::load_checkpoint(engine, job.resume);
    const std::string warning = check_data(checkpoint, source);
    if (engine.world().is_first() && !warning.empty()) std::fprintf(stderr, "%s\n", dspp::printable(warning).c_str());
    const auto first = checkpoint.client_state.find("first_data_step");
    Start start{.data = source.facts(),
                .next_sample = checkpoint.position.next_sample,
                .skipped = engine.skipped_steps(),
                .seed = checkpoint.position.seed};
    if (engine.world().is_first() && job.seed_given && start.seed != static_cast<std::uint64_t>(job.seed))
      std::fprintf(stderr,
                   "dspp: --resume goes on with the seed of its checkpoint, %llu: --seed %lld is the sample's alone.\n",
                   static_cast<unsigned long long>(start.seed), static_cast<long long>(job.seed));
    if (first != checkpoint.client_state.end()) {
      const char* const end = first->second.data() + first->second.size();
      const auto [stop, error] = std::from_chars(first->second.data(), end, start.data_step);
      if (error != std::errc() || stop != end || start.data_step < 0 || start.data_step > checkpoint.position.next_step)
        dspp::fail(dspp::ErrorCode::file,
                   "dspp: --resume needs a checkpoint whose first_data_step is a step of its data, in [0, " +
                       std::to_string(checkpoint.position.next_step) + "], but '" + checkpoint.tag + "' has " +
                       dspp::json_quoted(first->second) + ". Give another checkpoint.");
    }
    start.taken = checkpoint.position.next_step - start.data_step;
    if (const Size steps = engine.steps() + engine.skipped_steps(); checkpoint.position.next_step != steps)
      dspp::fail(dspp::ErrorCode::file,
                 "dspp: --resume needs a checkpoint that is as far in its data as in its training, after " +
                     std::to_string(steps) + " steps, but '" + checkpoint.tag + "' goes on with step " +
                     std::to_string(checkpoint.position.next_step) + " of its data. Give another checkpoint.");
    return start;
  }
  if (job.load.empty())
    dspp::set_parameter(engine, "positions.weight", waves(job.model.sequence, job.model.width, 0.1));
  else
    dspp::load_weights(engine, weights_in(job.load));
  return {.data = source.facts(), .data_step = engine.steps(), .seed = engine.world().seed()};
}

/// The remaining batches: their step 0 is step `taken` of the schedule.
inline dspp::data::BatchConfig batches_from(const Job& job, const Start& start) {
  return {.steps = job.by_time ? 1'000'000'000 : job.steps,
          .seed = start.seed,
          .first_step = start.next_sample > 0 ? 0 : start.data_step + start.taken,
          .first_sample = start.next_sample};
}

/// Saves a checkpoint after step `taken` of the schedule; `next_sample` is 0 for data without a stream. Call on every
/// rank.
template <class Engine>
void save(Engine& engine, const Job& job, const Start& start, Size taken, Size next_sample) {
  auto client_state = start.data;
  client_state["first_data_step"] = std::to_string(start.data_step);
  dspp::save_checkpoint(
      engine, job.save,
      {.tag = dspp::io::step_tag(start.data_step + taken),  // skipped steps count, too
       .position = {.next_step = start.data_step + taken, .next_sample = next_sample, .seed = start.seed},
       .client_state = client_state,
       .keep = 2});
}

}  // namespace train_gpt
