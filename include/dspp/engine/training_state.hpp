// SPDX-License-Identifier: Apache-2.0
/// A training on disk, whole: written under any strategy, resumed under any other, bit for bit.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/engine/checkpoint.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/engine/together.hpp>
#include <dspp/engine/training_facts.hpp>
#include <dspp/io/state_folder.hpp>
#include <dspp/io/state_writer.hpp>

namespace dspp {

struct SaveOptions {
  std::string tag{};                                  ///< the state's name; empty: by the step, "step_00001000"
  TrainingPosition position{};                        ///< of the data, for whoever resumes
  std::map<std::string, std::string> client_state{};  ///< the program's own words, UTF-8, for whoever resumes
  int keep = 0;                 ///< states named by steps that stay, this one counted if it is; 0: all
  FileSystem* files = nullptr;  ///< what is written through; null: the system's
};

struct LoadOptions {
  std::string tag{};  ///< the state's name; empty: what `latest` names, or the state that the folder itself is
};

/// What a state says to the program that resumes.
struct Resumed {
  std::string tag{};
  TrainingPosition position{};
  std::map<std::string, std::string> client_state{};
};

/// Writes the training to folder/<tag>/ and makes folder/latest name it: masters (or values where there are none) and
/// moments by global name in safetensors files, the rest in state.json, with a checksum for every MiB. The tensors'
/// bytes are the same under every strategy whose sums have one precision. What is there under a name is whole at any
/// time, however this ends. Call on every rank, at a step boundary, with the same options.
///
/// Cost     each rank writes what it answers for, straight from its memory; gathers 4 bytes per MiB and rank
/// Memory   about 30 bytes per MiB of the state, and 4 KiB for each rank
/// Throws   Error(state) between backward and step, or, before anything is written, if a parameter is not finite;
///          Error(file), a sentence, the same on every rank, if any rank could not write: what was saved before stays,
///          but in place of a state of the same name may be the new one, whole. What is only in the way of cleaning up
///          is no error
template <class Engine>
void save_checkpoint(Engine& engine, const std::string& folder, const SaveOptions& options = {});

/// Resumes what save_checkpoint wrote: tensors, counts, learning rate, loss scale and random seed are those of the
/// state, and the training goes on as if it had not stopped; hyper-parameters are the engine's own. Every byte is held
/// against its checksum before anything is changed. `folder` is that of the states, or of one of them. Call on every
/// rank.
///
/// Cost     each rank reads an equal part to verify, and what it holds; no communication of tensors
/// Memory   1 MiB, and about 30 bytes per MiB of the state
/// Throws   Error(file), a sentence, the same on every rank, if a file is missing, cut off or changed, with the states
///          that are there instead, or is of another model, optimizer or precision; the engine is as it was. Only if a
///          file becomes shorter after it was verified, the engine holds part of the state: load one again
template <class Engine>
Resumed load_checkpoint(Engine& engine, const std::string& folder, const LoadOptions& options = {});

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline std::string moment_name(const std::string& parameter, int moment) {
  return parameter + ".moment" + std::to_string(moment + 1);
}

/// The tensors of one of a state's files, each name once: a parameter may be held in several pieces.
template <class Engine, class NameOf>
std::vector<TensorSpec> state_tensors(const Engine& engine, NameOf name_of, int copies) {
  std::map<std::string, TensorSpec> tensors;
  for (const auto& named : engine.inventory().parameters)
    for (int i = 0; i < copies; ++i) {
      const std::string name = name_of(named.name.text, i);
      tensors[name] = {name, element_type<Compute<typename Engine::T>>, named.name.extents};
    }
  std::vector<TensorSpec> list;
  for (auto& [name, tensor] : tensors) list.push_back(std::move(tensor));
  return list;
}

/// The checksums of a file from every rank's shares, some at a time.
template <class C>
StateFile gather_checksums(C& ranks, const char* name, StateWriter& writer) {
  constexpr Size step = 1024;
  StateFile file{name, writer.bytes(), {}};
  const auto& mine = writer.shares();
  std::vector<std::uint32_t> all;
  for (Size first = 0; first < std::ssize(mine); first += step) {
    const Size count = std::min(step, std::ssize(mine) - first);
    all.resize(static_cast<std::size_t>(count * ranks.size()));
    all_gather(ranks, ConstBuffer{mine.data() + first, 4 * count, ElementType::u8},
               Buffer{all.data(), 4 * count * ranks.size(), ElementType::u8}, Purpose::checkpoint);
    for (Size i = 0; i < count; ++i) {
      const Size begin = (first + i) * state_chunk_bytes;
      std::uint32_t sum = crc32c_of_zeros(file.chunk_end(first + i) - begin);
      for (Size rank = 0; rank < ranks.size(); ++rank) sum ^= all[static_cast<std::size_t>(rank * count + i)];
      file.checksums.push_back(sum);
    }
  }
  return file;
}

/// Writes this rank's elements of every tensor, then returns when they are on the disk.
template <class Engine>
void write_tensors(Engine& engine, FileSystem& system, StateWriter& model, StateWriter& moments) {
  constexpr int moment_count = Engine::OptimizerType::moment_count;
  const bool first = engine.world().is_first();
  model.open(system, first);
  for (const auto& named : engine.inventory().parameters)
    model.write(named.name.text, [&](auto write) { for_each_owned_run(engine, named, write); });
  model.close();
  if (moment_count == 0) return;
  moments.open(system, first);
  for (const auto& named : engine.inventory().parameters)
    for (int i = 0; i < moment_count; ++i)
      moments.write(moment_name(named.name.text, i),
                    [&](auto write) { for_each_owned_moment_run(engine, named, i, write); });
  moments.close();
}

/// Removes what was written if a save is left early.
struct Abandon {
  FileSystem& system;
  const StateFolder& states;
  const std::string& tag;
  bool active;
  ~Abandon() {
    if (active) abandon_state(system, states, tag);
  }
};

/// Stops unless the file holds the optimizer's moments and nothing else.
template <class Engine>
void require_same_moments(const Engine& engine, const SafetensorsReader& file) {
  const auto expected = state_tensors(engine, moment_name, Engine::OptimizerType::moment_count);
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::file, "dspp: resuming needs the moments of this model, but '" + file.path() + "' " + why +
                              ". Resume with the model and the optimizer that were saved.");
  };
  for (const TensorSpec& spec : expected) {
    const TensorEntry* tensor = file.find(spec.name);
    if (!tensor) refuse("has no tensor '" + spec.name + "'");
    if (tensor->shape != spec.shape || tensor->type() != spec.type) refuse("has another shape for '" + spec.name + "'");
  }
  if (file.tensors().size() != expected.size()) refuse("has tensors that the model has not");
}

/// Members of JSON objects below one another as facts: "optimizer lr".
inline void add_facts(Facts& facts, const std::string& name, const Json& value) {
  if (value.is(Json::Kind::integer))
    facts.add(name, value.integer);
  else if (value.is(Json::Kind::real))
    facts.add(name, value.real);
  else if (value.items.empty())
    facts.add(name, value.is(Json::Kind::boolean) ? (value.boolean ? "true" : "false") : value.string);
  for (std::size_t i = 0; i < value.items.size(); ++i)
    add_facts(facts, (name.empty() ? "" : name + " ") + (i < value.keys.size() ? value.keys[i] : std::to_string(i)),
              value.items[i]);
}

/// What a state says of itself, with the checksums of its files.
inline Facts facts_of_manifest(const StateManifest& manifest) {
  Facts facts;
  add_facts(facts, "", manifest.training);
  for (const StateFile& file : manifest.files) {
    facts.add("bytes of " + file.name, file.bytes);
    const Size bytes = 4 * std::ssize(file.checksums);
    facts.add("checksums of " + file.name, digest_text(Digest().add(file.checksums.data(), bytes).value()));
  }
  return facts;
}

/// A state that was verified, with its files open: from here on they may lose their names.
struct VerifiedState {
  TrainingFacts facts;
  Facts facts_of_files;  ///< what all ranks must have read
  SafetensorsReader model;
  std::optional<SafetensorsReader> moments{};  ///< of an optimizer that has some
};

/// Holds this rank's share of the state's chunks against their checksums, and what the files say against the engine.
template <class Engine>
VerifiedState verify_state(Engine& engine, const StateFolder& states, const std::string& tag) {
  using Optimizer = typename Engine::OptimizerType;
  const std::string path = states.state(tag);
  const std::string manifest_path = path + "/" + StateFolder::manifest;
  const StateManifest manifest = read_state_manifest(manifest_path);
  TrainingFacts facts = read_training_facts<Compute<typename Engine::T>, Optimizer>(manifest.training, manifest_path);
  auto& ranks = engine.world().all();
  const auto verify = [&](const char* name) {
    const std::string file = path + "/" + name;
    verify_state_file(file, manifest.file(name, manifest_path), ranks.rank(), ranks.size());
    return SafetensorsReader(file);
  };
  VerifiedState state{std::move(facts), facts_of_manifest(manifest), verify(StateFolder::model)};
  require_same_model(engine, state.model);
  if constexpr (Optimizer::moment_count > 0) {
    state.moments.emplace(verify(StateFolder::optimizer));
    require_same_moments(engine, *state.moments);
  }
  return state;
}

/// The tensor of each parameter, by the parameter's address.
template <class Engine, class NameOf>
std::map<const void*, const TensorEntry*> tensors_of(const Engine& engine, const SafetensorsReader& file,
                                                     NameOf name_of) {
  std::map<const void*, const TensorEntry*> tensors;
  for (const auto& named : engine.inventory().parameters)
    tensors[named.parameter] = &file.tensor(name_of(named.name.text));
  return tensors;
}

/// Fills what this rank holds from the state's files.
template <class Engine>
void fill_from_state(Engine& engine, const VerifiedState& state) {
  const int tp_rank = engine.world().place().tp;
  const auto for_each_bucket = [&](const SafetensorsReader& file, auto name_of, auto fill) {
    const auto tensors = tensors_of(engine, file, name_of);
    const auto source = [&](const auto& p, Size first, Size count, auto* values) {
      file.read(*tensors.at(&p), first, count, values);
    };
    for (auto* unit : engine.units())
      for (auto& b : unit->buckets()) fill(b, source);
  };
  for_each_bucket(
      state.model, [](const std::string& name) { return name; },
      [&](auto& b, const auto& source) { fill_bucket(b, engine.replicas(), tp_rank, source); });
  for (int i = 0; i < Engine::OptimizerType::moment_count; ++i)
    for_each_bucket(
        *state.moments, [&](const std::string& name) { return moment_name(name, i); },
        [&](auto& b, const auto& source) {
          write_values(b, engine.replicas().owned(b), tp_rank, source, b.moments[i].data());
        });
}

}  // namespace detail

template <class Engine>
void save_checkpoint(Engine& engine, const std::string& folder, const SaveOptions& options) {
  using Optimizer = typename Engine::OptimizerType;
  if (!engine.at_step_boundary())
    fail(ErrorCode::state,
         "dspp: save_checkpoint needs a training between two steps, but gradients wait for the next step(). Save after "
         "the step that acts.");
  require_finite_parameters(engine, "saving");
  auto& ranks = engine.world().all();
  const bool first = engine.world().is_first();
  FileSystem system_itself;
  FileSystem& system = options.files ? *options.files : system_itself;
  const StateFolder states{folder};
  const std::string tag = options.tag.empty() ? step_tag(engine.steps()) : options.tag;
  require_tag(tag);
  const std::string at = states.temporary(tag) + "/";
  const auto weight_name = [](const std::string& name, int) { return name; };
  StateWriter model(at + StateFolder::model, detail::state_tensors(engine, weight_name, 1),
                    {{"format", "pt"}, {"step", std::to_string(engine.steps())}});
  StateWriter moments(at + StateFolder::optimizer,
                      detail::state_tensors(engine, detail::moment_name, Optimizer::moment_count), {});
  detail::Abandon abandon{system, states, tag, false};
  together(ranks, [&] {
    if (!first) return;
    begin_state(system, states, tag);
    abandon.active = true;
    model.create(system);
    if (Optimizer::moment_count > 0) moments.create(system);
  });
  together(ranks, [&] { detail::write_tensors(engine, system, model, moments); });
  std::vector<StateFile> files{detail::gather_checksums(ranks, StateFolder::model, model)};
  if (Optimizer::moment_count > 0) files.push_back(detail::gather_checksums(ranks, StateFolder::optimizer, moments));
  together(ranks, [&] {
    if (!first) return;
    const std::string facts = training_facts_text(engine.progress(), engine.optimizer(), options.position,
                                                  options.client_state, element_type<Compute<typename Engine::T>>);
    const std::string manifest = state_manifest_text(facts, files);
    abandon.active = false;  // what has no name yet publish_state removes; else the state before is in that folder
    publish_state(system, states, tag, manifest, options.keep);
  });
}

template <class Engine>
Resumed load_checkpoint(Engine& engine, const std::string& folder, const LoadOptions& options) {
  auto& ranks = engine.world().all();
  StateFolder states{folder};
  std::string tag = options.tag;
  together(ranks, [&] {
    if (ranks.rank() != 0 || (tag.empty() && !states.has_latest() && is_state(folder))) return;
    if (tag.empty()) tag = states.read_latest();
    require_tag(tag);
  });
  tag = text_of_first(ranks, tag);
  if (tag.empty()) {  // the folder is the state
    const StatePlace place = place_of_state(folder);
    states.folder = place.folder;
    tag = place.tag;
  }
  std::optional<detail::VerifiedState> state;
  together(ranks, [&] { state.emplace(detail::verify_state(engine, states, tag)); });
  same_on_all_ranks(ranks, "load_checkpoint", state->facts_of_files, ErrorCode::file);
  engine.resume(state->facts.progress);  // first: operations in flight read values
  together(ranks, [&] { detail::fill_from_state(engine, *state); });
  return {tag, state->facts.position, std::move(state->facts.client_state)};
}

}  // namespace dspp
