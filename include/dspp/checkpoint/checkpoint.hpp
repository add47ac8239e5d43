// SPDX-License-Identifier: Apache-2.0
/// Weights to and from safetensors by global name: from any strategy to any strategy, without gathering.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <dspp/checkpoint/weights_file.hpp>
#include <dspp/comm/all_or_none.hpp>
#include <dspp/comm/same_facts.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/zero/full_tensors.hpp>

namespace dspp {

/// Writes directory/model.safetensors: every parameter of an engine or of Weights whole, in the precision of the
/// masters, with an engine's step as metadata. Every rank writes the byte ranges of its primary copies; the file gets
/// its name only when it is complete. Call on every rank.
///
/// Cost     this rank's share of the bytes, three barriers
/// Throws   Error(file); Error(state) if a parameter is not finite: the file that was there stays
template <class Engine>
void save_weights(Engine& engine, const std::string& directory, CallSite site = CallSite::here());

/// Reads what save_weights wrote, or any safetensors file with the model's names and shapes, each rank only its part.
/// Nothing is changed unless all tensors match; then an engine's gradients and moments are reset, since the file has
/// none, and its steps() is the file's. Weights of a checkpoint are first verified by its checksums. Call on every
/// rank.
///
/// Throws   Error(file), the same on every rank, if a tensor is missing, unexpected, or of another shape (a checkpoint
///          of another model), or if the ranks' files differ (SafetensorsReader::facts)
template <class Engine>
void load_weights(Engine& engine, const std::string& directory, CallSite site = CallSite::here());

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// An engine: it has steps beside the weights.
template <class H>
concept Trains = requires(H& holder) {
  holder.restart(holder.steps());
};

template <class Holder>
std::map<std::string, std::string> metadata_of(Holder& holder) {
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if constexpr (Trains<Holder>) metadata["step"] = std::to_string(holder.steps());
  return metadata;
}

/// Throws unless the file holds exactly the model's tensors.
template <class Engine>
void require_same_model(const Engine& engine, const io::SafetensorsReader& file) {
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::file, "dspp: loading needs the weights of this model, but '" + file.path() + "' " + why +
                              ". Load a checkpoint of the same model, or give the options it was trained with.");
  };
  const auto& parameters = engine.inventory().parameters;
  for (const auto& named : parameters) {
    const io::TensorEntry* tensor = file.find(named.name->text);
    if (!tensor) refuse("has no tensor '" + named.name->text + "'");
    if (tensor->shape != named.name->extents) refuse("has another shape for '" + named.name->text + "'");
    file.require_convertible(*tensor);
  }
  if (file.tensors().size() == parameters.size()) return;
  for (const io::TensorEntry& tensor : file.tensors()) {
    bool known = false;
    for (const auto& named : parameters) known = known || named.name->text == tensor.name;
    if (!known) refuse("has a tensor '" + tensor.name + "' that the model has not");
  }
}

/// The partial file of all ranks; creates the directory if there is none.
template <class World>
void create_in(io::SafetensorsWriter& writer, World& world, const std::string& directory) {
  if (world.is_first()) {
    make_directory(directory);
    writer.create();
  }
  world.host().barrier();
}

/// Replaces the file once every rank's bytes are on the disk.
template <class World>
void commit_together(io::SafetensorsWriter& writer, World& world) {
  writer.flush();
  world.host().barrier();
  if (world.is_first()) writer.commit();
  world.host().barrier();
}

}  // namespace detail

template <class Engine>
void save_weights(Engine& engine, const std::string& directory, CallSite site) {
  CalledAt here(site);
  using State = Compute<typename Engine::T>;
  require_finite_parameters(engine, "saving");
  std::vector<io::TensorSpec> tensors;
  for (const auto& named : engine.inventory().parameters)
    tensors.push_back({named.name->text, element_type<State>, named.name->extents});
  auto& world = engine.world();
  io::SafetensorsWriter writer(detail::weights_file(directory), tensors, detail::metadata_of(engine));
  detail::create_in(writer, world, directory);
  read_state(engine, [&] {
    for (const auto& named : engine.inventory().parameters)
      for_each_owned_run(engine, named, [&](Size global, Size count, const State* data) {
        writer.write(named.name->text, global, count, data);
      });
  });
  detail::commit_together(writer, world);
}

template <class Engine>
void load_weights(Engine& engine, const std::string& directory, CallSite site) {
  CalledAt here(site);
  auto& ranks = engine.world().host();
  std::optional<io::SafetensorsReader> opened;
  all_or_none(ranks, [&] {
    detail::verify_weights_of_checkpoint(directory, ranks.rank(), ranks.size());
    detail::refuse_other_weights_in(directory);
    opened.emplace(detail::weights_file(directory));
    detail::require_same_model(engine, *opened);
  });
  const io::SafetensorsReader& file = *opened;
  require_same_on_all_ranks(ranks, "load_weights", file.facts(), ErrorCode::file);
  std::map<const void*, const io::TensorEntry*> entry_of;
  for (const auto& named : engine.inventory().parameters) entry_of[named.parameter] = &file.tensor(named.name->text);
  all_or_none(ranks, [&] {
    for (auto* unit : engine.units())
      for (auto& b : unit->buckets())
        fill_parameters(engine, b, Range{0, b.count}, [&](const auto& p, Size first, Size count, auto* values) {
          file.read_as(*entry_of.at(&p), first, count, values);
        });
    settle_files(engine);
  });
  if constexpr (detail::Trains<Engine>) {
    engine.state().note_load();
    const auto step = file.metadata().find("step");
    const bool known = step != file.metadata().end() && !step->second.empty() && step->second.size() < 18 &&
                       step->second.find_first_not_of("0123456789") == std::string::npos;
    engine.restart(known ? std::stoll(step->second) : 0);
  }
}

}  // namespace dspp
