// SPDX-License-Identifier: Apache-2.0
/// The contents of state.json: a training's progress, optimizer and data position.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <dspp/base/facts.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/base/json_writer.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/io/checkpoint_names.hpp>
#include <dspp/io/json.hpp>
#include <dspp/io/safetensors_header.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>
#endif

namespace dspp {

/// A program's position in its data: given to save_checkpoint, returned by load_checkpoint.
struct TrainingPosition {
  Size next_step = 0;      ///< the next step of the batches: BatchConfig::first_step
  Size next_sample = 0;    ///< the next global sample, for data counted by samples
  std::uint64_t seed = 0;  ///< of the order of the data
  /// RankBatches::data_digest, for BatchConfig::data_digest of the run that resumes; 0: none
  std::uint64_t data_digest = 0;
};

namespace detail {

struct TrainingFacts {
  TrainingProgress progress{};
  TrainingPosition position{};
  std::map<std::string, std::string> client_state{};
  std::string tag{};                           ///< the checkpoint's tag; "" in old checkpoints without one
  std::map<std::string, std::string> model{};  ///< what its layers described; empty in old checkpoints
};

/// The name of an optimizer; "" if it has none.
template <class Optimizer>
std::string optimizer_name() {
  if constexpr (requires { Optimizer::name; })
    return Optimizer::name;
  else
    return {};
}

}  // namespace detail

/// A JSON object whose numbers read back to the same bits.
///
/// Throws   Error(state) if the learning rate is not in [0, the largest f32]; Error(usage) if the position is not in
///          [0, 2^53], if the client state is not UTF-8, or if the optimizer describes two numbers by one name, or one
///          as "name" or "moments", which are reserved
template <class Optimizer>
std::string training_facts_text(const TrainingProgress& progress, const Optimizer& optimizer,
                                const TrainingPosition& position,
                                const std::map<std::string, std::string>& client_state, ElementType state,
                                const std::string& tag = {}, const Facts& model = {}, const Facts& groups = {});

/// Reads them back; a checkpoint of another precision or optimizer, or with numbers out of range, is an error. `path`
/// is for error sentences.
///
/// Throws   Error(file)
template <class State, class Optimizer>
detail::TrainingFacts read_training_facts(const io::Json& training, const std::string& path);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The text of training_facts_text; describe_optimizer() has its name, moments and numbers.
std::string text_of_training(const TrainingProgress& progress, FunctionRef<JsonObject()> describe_optimizer,
                             const TrainingPosition& position, const std::map<std::string, std::string>& client_state,
                             ElementType state, const std::string& tag, const Facts& model, const Facts& groups);

/// Reads a training whose state and optimizer are as given; `name` is that of the optimizer.
TrainingFacts read_training(const io::Json& training, const std::string& path, ElementType state,
                            const std::string& name, int moments);

[[noreturn]] void fail_of_described(const char* key);

}  // namespace detail

template <class Optimizer>
std::string training_facts_text(const TrainingProgress& progress, const Optimizer& optimizer,
                                const TrainingPosition& position,
                                const std::map<std::string, std::string>& client_state, ElementType state,
                                const std::string& tag, const Facts& model, const Facts& groups) {
  const auto describe_optimizer = [&] {
    JsonObject described;
    described.add("name", detail::optimizer_name<Optimizer>()).add("moments", Optimizer::moment_count);
    std::set<std::string> keys{"name", "moments"};
    if constexpr (requires { optimizer.describe([](const char*, auto) {}); })
      optimizer.describe([&](const char* key, auto value) {
        if (!keys.insert(key).second) detail::fail_of_described(key);
        described.add(key, value);
      });
    return described;
  };
  return detail::text_of_training(progress, describe_optimizer, position, client_state, state, tag, model, groups);
}

template <class State, class Optimizer>
detail::TrainingFacts read_training_facts(const io::Json& training, const std::string& path) {
  return detail::read_training(training, path, element_type<State>, detail::optimizer_name<Optimizer>(),
                               Optimizer::moment_count);
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

/// Steps and samples are counted up to here: their products with a batch's size fit 63 bits.
inline constexpr Size largest_count = Size{1} << 53;
inline constexpr double largest_rate = static_cast<double>(std::numeric_limits<float>::max()), largest_scale = 0x1p127;

/// Required members of a JSON object.
class FactReader {
 public:
  FactReader(const io::Json& object, const std::string& path) : object_(object), path_(path) {}

  io::Json member(const char* key, io::Json::Kind kind) const {
    const std::optional<io::Json> found = object_.find(key);
    const bool number = kind == io::Json::Kind::real && found && found->is(io::Json::Kind::integer);
    if (!found || (!found->is(kind) && !number)) refuse(key);
    return *found;
  }
  FactReader within(const char* key) const { return {member(key, io::Json::Kind::object), path_}; }
  Size integer(const char* key) const { return member(key, io::Json::Kind::integer).integer; }
  /// A whole number in [least, most].
  Size count(const char* key, Size least = 0, Size most = largest_count) const {
    const Size number = integer(key);
    if (number < least || number > most)
      refuse_range(key, std::to_string(least), std::to_string(most), std::to_string(number));
    return number;
  }
  double real(const char* key) const { return member(key, io::Json::Kind::real).real; }
  double real(const char* key, double least, double most) const {
    const double number = real(key);
    if (!(number >= least && number <= most)) refuse_range(key, json_real(least), json_real(most), json_real(number));
    return number;
  }
  bool has(const char* key) const { return object_.find(key).has_value(); }
  bool boolean(const char* key) const { return member(key, io::Json::Kind::boolean).boolean; }
  std::string text(const char* key) const { return member(key, io::Json::Kind::string).string; }
  /// An unsigned 64-bit number, written as text, since JSON numbers may not hold it.
  std::uint64_t wide(const char* key) const {
    const std::string digits = text(key);
    std::uint64_t number = 0;
    const auto end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (stop != end || error != std::errc()) refuse(key);
    return number;
  }

 private:
  [[noreturn]] void refuse(const char* key) const {
    fail(ErrorCode::file, "dspp: '" + path_ + "' needs a '" + key + "' of a training, but has none of its kind. " +
                              io::load_another_than_that_of(path_));
  }

  [[noreturn]] void refuse_range(const char* key, const std::string& least, const std::string& most,
                                 const std::string& got) const {
    fail(ErrorCode::file, "dspp: '" + path_ + "' needs a '" + key + "' of a training, in [" + least + ", " + most +
                              "], but has " + got + ". " + io::load_another_than_that_of(path_));
  }

  io::Json object_;
  const std::string& path_;
};

DSPP_INLINE TrainingProgress read_progress(const FactReader& facts) {
  const FactReader scale = facts.within("loss_scale");
  const Size steps = facts.count("steps"), updates = scale.count("updates");
  return {.steps = steps,
          .skipped_steps = facts.count("skipped_steps"),
          .moment_steps = facts.count("moment_steps", 0, steps),
          .learning_rate = facts.real("learning_rate", 0, largest_rate),
          .seed = facts.wide("seed"),
          .dynamic_loss_scale = scale.boolean("dynamic"),
          .loss_scale = {.value = scale.real("value", 1 / largest_scale, largest_scale),
                         .updates = updates,
                         .last_overflow = scale.count("last_overflow", -1, std::max<Size>(updates - 1, -1)),
                         .hysteresis = scale.count("hysteresis")},
          .run = facts.has("run") ? facts.wide("run") : 0};
}

DSPP_INLINE void fail_of_described(const char* key) {
  fail(ErrorCode::usage, "dspp: saving needs an optimizer that describes each number by a name of its own, but '" +
                             std::string(key) + "' is taken. Rename it in describe().");
}

DSPP_INLINE std::string text_of_training(const TrainingProgress& progress, FunctionRef<JsonObject()> describe_optimizer,
                                         const TrainingPosition& position,
                                         const std::map<std::string, std::string>& client_state, ElementType state,
                                         const std::string& tag, const Facts& model, const Facts& groups) {
  require(progress.learning_rate >= 0 && progress.learning_rate <= largest_rate,
          "dspp: saving needs a learning rate that is finite, at least 0 and an f32, but it is not. Call "
          "set_learning_rate().",
          ErrorCode::state);
  for (const Size count : {position.next_step, position.next_sample})
    require(count >= 0 && count <= largest_count,
            "dspp: saving needs a position in [0, 2^53], but it is outside. Give the next step or sample.",
            ErrorCode::usage, {{"position", count}});
  const JsonObject of_optimizer = describe_optimizer();
  JsonObject of_client;
  for (const auto& [key, value] : client_state) {
    if (io::first_bad_utf8(key) >= 0 || io::first_bad_utf8(value) >= 0)
      fail(ErrorCode::usage,
           "dspp: saving needs a client_state in UTF-8, but '" + key + "' is something else. Encode it as text.");
    of_client.add(key, value);
  }
  JsonObject of_position;
  of_position.add("next_step", position.next_step).add("next_sample", position.next_sample);
  of_position.add("seed", std::to_string(position.seed));
  if (position.data_digest != 0) of_position.add("data_digest", std::to_string(position.data_digest));
  const LossScaleState& scale = progress.loss_scale;
  JsonObject facts;
  facts.add("steps", progress.steps)
      .add("skipped_steps", progress.skipped_steps)
      .add("moment_steps", progress.moment_steps)
      .add("learning_rate", progress.learning_rate)
      .add("seed", std::to_string(progress.seed))
      .add("element", io::safetensors_dtype(state))
      .add("optimizer", of_optimizer)
      .add("loss_scale", JsonObject()
                             .add("dynamic", progress.dynamic_loss_scale)
                             .add("value", scale.value)
                             .add("updates", scale.updates)
                             .add("last_overflow", scale.last_overflow)
                             .add("hysteresis", scale.hysteresis))
      .add("position", of_position)
      .add("client_state", of_client);
  if (progress.run != 0) facts.add("run", std::to_string(progress.run));
  if (!tag.empty()) facts.add("tag", tag);
  const auto add_all = [&](const char* key, const Facts& all) {
    JsonObject object;
    for (const auto& [name, value] : all.all()) object.add(name, value);
    if (!all.all().empty()) facts.add(key, object);
  };
  add_all("model", model), add_all("groups", groups);
  return facts.text();
}

DSPP_INLINE TrainingFacts read_training(const io::Json& training, const std::string& path, ElementType state,
                                        const std::string& name, int moments) {
  const FactReader facts(training, path), optimizer = facts.within("optimizer");
  const std::string element = io::safetensors_dtype(state);
  if (facts.text("element") != element)
    fail(ErrorCode::file, "dspp: resuming needs a checkpoint in " + element + ", as this policy sums, but '" + path +
                              "' is in " + facts.text("element") + ". Take a policy of the precision that was saved.");
  if (optimizer.text("name") != name || optimizer.integer("moments") != moments)
    fail(ErrorCode::file, "dspp: resuming needs the state of " + (name.empty() ? std::string("this optimizer") : name) +
                              " with " + std::to_string(moments) + " moments, but '" + path + "' is of '" +
                              optimizer.text("name") + "' with " + std::to_string(optimizer.integer("moments")) +
                              ". Resume with that optimizer, or load_weights() alone.");
  TrainingFacts read;
  read.progress = read_progress(facts);
  const FactReader position = facts.within("position");
  read.position = {position.count("next_step"), position.count("next_sample"), position.wide("seed"),
                   position.has("data_digest") ? position.wide("data_digest") : 0};
  if (facts.has("tag")) read.tag = facts.text("tag");
  if (facts.has("model")) {
    const io::Json model = facts.member("model", io::Json::Kind::object);
    for (const io::Json& fact : model.items()) read.model[fact.key] = fact.string;
  }
  const io::Json client = facts.member("client_state", io::Json::Kind::object);
  for (const io::Json& word : client.items()) read.client_state[word.key] = word.string;
  return read;
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
