// SPDX-License-Identifier: Apache-2.0
/// Checkpoints of a training: saved under any strategy, resumed under any other, bit for bit.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/checkpoint/checkpoint.hpp>
#include <dspp/checkpoint/manifest_facts.hpp>
#include <dspp/checkpoint/training_facts.hpp>
#include <dspp/comm/all_or_none.hpp>
#include <dspp/data/fnv.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/checkpoint_writer.hpp>

namespace dspp {

struct SaveOptions {
  std::string tag{};                                  ///< the checkpoint's tag; empty: from the step, "step_00001000"
  TrainingPosition position{};                        ///< of the data, returned by load_checkpoint
  std::map<std::string, std::string> client_state{};  ///< the program's own data, UTF-8, returned by load_checkpoint
  int keep = 0;                                       ///< step-tagged checkpoints to keep, this one included; 0: all
  io::FileSystem* files = nullptr;                    ///< the file system to write through; null: the system's
};

struct LoadOptions {
  std::string tag{};  ///< the checkpoint's tag; empty: the one that `latest` names, or the folder itself
};

/// What load_checkpoint returns to the program.
struct Resumed {
  std::string tag{};
  TrainingPosition position{};
  std::map<std::string, std::string> client_state{};
};

/// Writes the training to folder/<tag>/ and makes folder/latest name it: masters (or values where there are none) and
/// moments by global name in safetensors files, the rest in state.json, with a checksum for every MiB. The tensors'
/// bytes are the same under every strategy whose sums have one precision. A checkpoint under its tag is complete at any
/// time, even if saving fails. Call on every rank, at a step boundary, with the same options.
///
/// Cost     each rank writes its primary copies, straight from its memory; gathers 4 bytes per MiB and rank
/// Memory   about 30 bytes per MiB of the checkpoint, and 4 KiB for each rank
/// Throws   Error(state) between backward and step, or, before anything is written, if a parameter is not finite;
///          Error(file), the same on every rank, if another job holds the folder, if there is no room, or if any rank
///          could not write: earlier checkpoints stay, but one of the same tag may be replaced by the new one,
///          complete. A failure to clean up is no error
template <class Engine>
void save_checkpoint(Engine& engine, const std::string& folder, const SaveOptions& options = {},
                     CallSite site = CallSite::here());

/// Locks a folder, created if there is none, for this training until the engine is destroyed, as the first
/// save_checkpoint does: two jobs that save in one folder would remove each other's checkpoints. A collective, although
/// rank 0 alone takes the lock: call on every rank.
///
/// Cost     gathers a byte of each rank (comm/all_or_none.hpp)
/// Throws   Error(file), the same on every rank, with pid, host and start of the job that holds it
template <class Engine>
void lock_checkpoint_folder(Engine& engine, const std::string& folder, io::FileSystem* files = nullptr,
                            CallSite site = CallSite::here());

/// Resumes what save_checkpoint wrote: tensors, counts, learning rate, loss scale and random seed are the checkpoint's,
/// and the training continues as if it had not stopped; hyper-parameters are the engine's own. Every checksum is
/// verified before anything is changed, and so is the training that `latest` names. `folder` is that of the
/// checkpoints, or one of them. Call on every rank.
///
/// Cost     each rank reads an equal part to verify, and what it holds; no communication of tensors
/// Memory   1 MiB, and about 30 bytes per MiB of the checkpoint
/// Throws   Error(file), the same on every rank, if a file is missing, truncated or changed, with the checkpoints that
///          exist, or is of another model, optimizer or precision; the engine is unchanged. If a file is truncated
///          after it was verified, the engine holds part of the checkpoint: load one again
template <class Engine>
Resumed load_checkpoint(Engine& engine, const std::string& folder, const LoadOptions& options = {},
                        CallSite site = CallSite::here());

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The tensors of one of a checkpoint's files, each name once: a parameter may be in several pieces.
/// `copies(parameter)` is the number of a parameter's tensors.
template <class Engine, class NameOf, class Copies>
std::vector<io::TensorSpec> checkpoint_tensors(const Engine& engine, NameOf name_of, Copies copies) {
  std::map<std::string, io::TensorSpec> tensors;
  for (const auto& named : engine.inventory().parameters)
    for (int i = 0; i < copies(*named.parameter); ++i) {
      const std::string name = name_of(named.name->text, i);
      tensors[name] = {name, element_type<Compute<typename Engine::T>>, named.name->extents};
    }
  std::vector<io::TensorSpec> list;
  for (auto& [name, tensor] : tensors) list.push_back(std::move(tensor));
  return list;
}

/// The specs of the optimizer's file.
template <class Engine>
std::vector<io::TensorSpec> moment_tensors(const Engine& engine) {
  return checkpoint_tensors(engine, moment_name,
                            [](const auto& p) { return moments_of<typename Engine::OptimizerType>(p); });
}

/// Chunks per gather of a file's checksums from the shares of all ranks.
inline constexpr Size gathered_chunks = 1024;
template <class C>
void gather_checksums(C& ranks, io::CheckpointWriter& writer, std::vector<std::uint32_t>& all,
                      io::CheckpointFile& file) {
  const auto& mine = writer.shares();
  for (Size first = 0; first < std::ssize(mine); first += gathered_chunks) {
    const Size count = std::min(gathered_chunks, std::ssize(mine) - first);
    all_gather(ranks, ConstBuffer{mine.data() + first, 4 * count, ElementType::u8},
               Buffer{all.data(), 4 * count * ranks.size(), ElementType::u8}, Purpose::checkpoint);
    for (Size i = 0; i < count; ++i) {
      const Size begin = (first + i) * io::checkpoint_chunk_bytes;
      std::uint32_t sum = crc32c_of_zeros(file.chunk_end(first + i) - begin);
      for (Size rank = 0; rank < ranks.size(); ++rank) sum ^= all[static_cast<std::size_t>(rank * count + i)];
      file.checksums.push_back(sum);
    }
  }
}

/// Writes this rank's elements of every tensor; returns when they are on the disk.
template <class Engine>
void write_tensors(Engine& engine, io::FileSystem& system, io::CheckpointWriter& model, io::CheckpointWriter& moments) {
  constexpr int moment_count = most_moments<typename Engine::OptimizerType>();
  const bool first = engine.world().is_first();
  model.open(system, first);
  for (const auto& named : engine.inventory().parameters)
    model.write(named.name->text, [&](auto write) { for_each_owned_run(engine, named, write); });
  model.close();
  if (moment_count == 0) return;
  moments.open(system, first);
  for (const auto& named : engine.inventory().parameters)
    for (int i = 0; i < moments_of<typename Engine::OptimizerType>(*named.parameter); ++i)
      moments.write(moment_name(named.name->text, i),
                    [&](auto write) { for_each_owned_moment_run(engine, named, i, write); });
  moments.close();
}

/// One save on one rank: its files and their gathered checksums. Removes what was written if the save fails.
template <class Engine>
class Saving {
 public:
  static constexpr int moment_count = most_moments<typename Engine::OptimizerType>();

  Saving(Engine& engine, const std::string& folder, const SaveOptions& options, io::FileSystem& files)
      : system(files),
        checkpoints_{folder},
        tag_(options.tag.empty() ? io::step_tag(engine.steps()) : options.tag),
        model(path(io::CheckpointFolder::model),
              checkpoint_tensors(
                  engine, [](const std::string& name, int) { return name; }, [](const auto&) { return 1; }),
              {{"format", "pt"}, {"step", std::to_string(engine.steps())}}),
        moments(path(io::CheckpointFolder::optimizer), moment_tensors(engine), {}) {
    io::require_tag(tag_);
    add(io::CheckpointFolder::model, model);
    if (moment_count > 0) add(io::CheckpointFolder::optimizer, moments);
    const Size most = std::min(gathered_chunks, std::max(std::ssize(model.shares()), std::ssize(moments.shares())));
    gathered_.resize(static_cast<std::size_t>(most * engine.world().host().size()));
  }
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  ~Saving() {
    if (begun_) io::abandon_checkpoint(system, checkpoints_, tag_);
  }

  /// On the first rank: locks the folder, checks for room and creates the files.
  void begin(Engine& engine) {
    io::make_folders(system, checkpoints_.folder);
    engine.checkpoint_locks().hold(checkpoints_.folder);
    io::begin_checkpoint(system, checkpoints_, tag_);
    begun_ = true;
    constexpr Size besides = 64_KiB;  // names, `latest` and state.json
    const Size bytes = model.bytes() + (moment_count > 0 ? moments.bytes() : 0);
    io::detail::require_room(checkpoints_.folder, bytes + bytes / io::checkpoint_chunk_bytes * 9 + besides,
                             system.free_bytes(checkpoints_.folder));
    model.create(system);
    if (moment_count > 0) moments.create(system);
  }
  template <class C>
  void gather(C& ranks) {
    gather_checksums(ranks, model, gathered_, files_[0]);
    if (moment_count > 0) gather_checksums(ranks, moments, gathered_, files_[1]);
  }
  /// Gives a training its run number at its first checkpoint: the same on every rank and under every strategy, another
  /// for other weights, another seed or other data.
  void name_run(Engine& engine, const SaveOptions& options) const {
    if (engine.progress().run != 0) return;
    data::Fnv1a sum;
    const auto add = [&](const auto& number) { sum.add({reinterpret_cast<const char*>(&number), sizeof number}); };
    for (const io::CheckpointFile& file : files_)
      for (const std::uint32_t checksum : file.checksums) add(checksum);
    add(engine.progress().seed), add(engine.learning_rate()), add(options.position.seed);
    for (const auto& [key, value] : options.client_state) sum.add(key).add(value);
    engine.name_run(std::max<std::uint64_t>(sum.value(), 1));
  }
  /// On the first rank: gives the checkpoint its tag.
  void publish(Engine& engine, const SaveOptions& options) {
    const std::string facts = training_facts_text(engine.progress(), engine.optimizer(), options.position,
                                                  options.client_state, element_type<Compute<typename Engine::T>>, tag_,
                                                  described_facts(engine.weights().rooted().inner),
                                                  group_facts(engine.config().groups, engine.inventory()));
    require_own_name(engine.progress().run);
    const std::string manifest = io::checkpoint_manifest_text(facts, files_);
    begun_ = false;  // publish_checkpoint removes an untagged folder; otherwise the folder has the previous checkpoint
    io::publish_checkpoint(system, checkpoints_, tag_, manifest, options.keep, engine.progress().run);
  }

  io::FileSystem& system;

 private:
  std::string path(const char* name) const { return checkpoints_.temporary(tag_) + "/" + name; }
  /// Throws if another training has a checkpoint of that name.
  void require_own_name(std::uint64_t run) const {
    const std::uint64_t other = io::detail::run_of_checkpoint(checkpoints_.path_of(tag_));
    if (other != 0 && other != run)
      fail(ErrorCode::file, "dspp: saving needs a name that is free or of this training, but '" +
                                checkpoints_.path_of(tag_) +
                                "' is a checkpoint of another. Give another folder or another tag.");
  }
  void add(const char* name, io::CheckpointWriter& writer) {
    files_.push_back({name, writer.bytes(), {}});
    files_.back().checksums.reserve(writer.shares().size());
  }

  io::CheckpointFolder checkpoints_;
  std::string tag_;
  std::vector<io::CheckpointFile> files_;
  std::vector<std::uint32_t> gathered_;
  bool begun_ = false;

 public:
  io::CheckpointWriter model, moments;
};

/// Throws unless the layers of the engine's model describe what those of the checkpoint did, as far as both do.
template <class Engine>
void require_same_description(Engine& engine, const TrainingFacts& facts, const std::string& path) {
  if (facts.model.empty()) return;
  const Facts own = described_facts(engine.weights().rooted().inner);
  for (const auto& [name, value] : own.all()) {
    const auto saved = facts.model.find(name);
    if (saved != facts.model.end() && saved->second != value)
      fail(ErrorCode::file, "dspp: resuming needs the model that was saved, but '" + path + "' has '" + name + "' " +
                                saved->second + " and this model " + value +
                                ". Build the model of the checkpoint, or load_weights() alone.");
  }
}

/// Throws unless the file holds exactly the optimizer's moments.
template <class Engine>
void require_same_moments(const Engine& engine, const io::SafetensorsReader& file) {
  const auto expected = moment_tensors(engine);
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::file, "dspp: resuming needs the moments of this model and its parameter groups, but '" +
                              file.path() + "' " + why +
                              ". Resume with the model, optimizer and frozen parameters that were saved.");
  };
  for (const io::TensorSpec& spec : expected) {
    const io::TensorEntry* tensor = file.find(spec.name);
    if (!tensor) refuse("has no tensor '" + spec.name + "'");
    if (tensor->shape != spec.shape || tensor->type() != spec.type) refuse("has another shape for '" + spec.name + "'");
  }
  if (file.tensors().size() != expected.size()) refuse("has tensors that the model has not");
}

/// A verified checkpoint with its files open, which may be renamed or removed from here on.
struct VerifiedCheckpoint {
  TrainingFacts facts;
  Facts facts_of_files;  ///< must be equal on all ranks
  io::SafetensorsReader model;
  std::optional<io::SafetensorsReader> moments{};  ///< if the optimizer has moments
};

/// Verifies the checksums of this rank's share of the chunks, and compares the files with the engine.
template <class Engine>
VerifiedCheckpoint verify_checkpoint(Engine& engine, const io::CheckpointFolder& checkpoints, const std::string& tag) {
  using Optimizer = typename Engine::OptimizerType;
  const std::string path = checkpoints.path_of(tag);
  const std::string manifest_path = path + "/" + io::CheckpointFolder::manifest;
  const io::CheckpointManifest manifest = io::read_checkpoint_manifest(manifest_path);
  TrainingFacts facts = read_training_facts<Compute<typename Engine::T>, Optimizer>(manifest.training(), manifest_path);
  auto& ranks = engine.world().host();
  const auto verify = [&](const char* name) {
    const std::string file = path + "/" + name;
    io::verify_checkpoint_file(file, manifest.file(name, manifest_path), ranks.rank(), ranks.size());
    return io::SafetensorsReader(file);
  };
  VerifiedCheckpoint checkpoint{std::move(facts), facts_of_manifest(manifest), verify(io::CheckpointFolder::model)};
  require_same_model(engine, checkpoint.model);
  require_same_description(engine, checkpoint.facts, manifest_path);
  if constexpr (most_moments<Optimizer>() > 0) {
    checkpoint.moments.emplace(verify(io::CheckpointFolder::optimizer));
    require_same_moments(engine, *checkpoint.moments);
  }
  return checkpoint;
}

/// The tensor of each parameter that the file has, by address of the parameter.
template <class Engine, class NameOf>
std::map<const void*, const io::TensorEntry*> tensors_of(const Engine& engine, const io::SafetensorsReader& file,
                                                         NameOf name_of) {
  std::map<const void*, const io::TensorEntry*> tensors;
  for (const auto& named : engine.inventory().parameters)
    if (const io::TensorEntry* tensor = file.find(name_of(named.name->text))) tensors[named.parameter] = tensor;
  return tensors;
}

/// Fills this rank's part from the checkpoint's files.
template <class Engine>
void fill_from_checkpoint(Engine& engine, const VerifiedCheckpoint& checkpoint) {
  const int tp_rank = engine.world().tp_rank();
  const auto for_each_bucket = [&](const io::SafetensorsReader& file, auto name_of, auto fill) {
    const auto tensors = tensors_of(engine, file, name_of);
    const auto source = [&](const auto& p, Size first, Size count, auto* values) {
      file.read(*tensors.at(&p), first, count, values);
    };
    for (auto* unit : engine.units())
      for (auto& b : unit->buckets()) fill(b, source);
  };
  for_each_bucket(
      checkpoint.model, [](const std::string& name) { return name; },
      [&](auto& b, const auto& source) {
        fill_parameters(engine, b, Range{0, b.count}, source);
      });
  engine.state().note_load();
  for (int i = 0; i < most_moments<typename Engine::OptimizerType>(); ++i)
    for_each_bucket(
        *checkpoint.moments, [&](const std::string& name) { return moment_name(name, i); },
        [&](auto& b, const auto& source) {
          if (i >= engine.state().moments(b)) return;
          write_values(b, engine.replicas().owned(b), tp_rank, source, engine.world().memory(),
                       engine.state().change(b).moments[i].data());
        });
  engine.state().settle();
}

}  // namespace detail

template <class Engine>
void lock_checkpoint_folder(Engine& engine, const std::string& folder, io::FileSystem* files, CallSite site) {
  CalledAt here(site);
  all_or_none(engine.world().host(), [&] {
    if (!engine.world().is_first()) return;
    io::FileSystem system_itself;
    const bool made = ::access(folder.c_str(), F_OK) != 0;
    io::make_folders(files ? *files : system_itself, folder);
    engine.checkpoint_locks().hold(folder, made);
  });
}

template <class Engine>
void save_checkpoint(Engine& engine, const std::string& folder, const SaveOptions& options, CallSite site) {
  CalledAt here(site);
  if (!engine.at_step_boundary())
    fail(ErrorCode::state,
         "dspp: save_checkpoint needs a training between two steps, but gradients wait for the next step(). Save after "
         "the step that acts.");
  if (options.keep < 0)
    fail(ErrorCode::usage, "dspp: save_checkpoint needs a keep of at least 0, but got " + std::to_string(options.keep) +
                               ". 0 keeps all.");
  require_finite_parameters(engine, "saving", true);
  engine.replicas().forget_errors();
  auto& ranks = engine.world().host();
  const bool first = engine.world().is_first();
  io::FileSystem system_itself;
  std::optional<detail::Saving<Engine>> saving;  // allocates all memory where a failure is an error on every rank
  all_or_none(ranks, [&] { saving.emplace(engine, folder, options, options.files ? *options.files : system_itself); });
  all_or_none(ranks, [&] {
    if (first) saving->begin(engine);
  });
  all_or_none(ranks, [&] { detail::write_tensors(engine, saving->system, saving->model, saving->moments); });
  saving->gather(ranks);
  saving->name_run(engine, options);
  all_or_none(ranks, [&] {
    if (first) saving->publish(engine, options);
  });
}

template <class Engine>
Resumed load_checkpoint(Engine& engine, const std::string& folder, const LoadOptions& options, CallSite site) {
  CalledAt here(site);
  auto& ranks = engine.world().host();
  io::CheckpointFolder checkpoints{folder};
  io::CheckpointFolder::Latest wanted{options.tag};
  all_or_none(ranks, [&] {
    if (ranks.rank() != 0 || (wanted.tag.empty() && !checkpoints.has_latest() && io::is_checkpoint(folder))) return;
    if (wanted.tag.empty()) wanted = checkpoints.read_latest_checkpoint();
    io::require_tag(wanted.tag);
  });
  const bool by_latest = options.tag.empty();
  std::string tag = text_of_first(ranks, wanted.tag);
  broadcast(ranks, Buffer{&wanted.run, 8, ElementType::u8}, 0, Purpose::checkpoint);
  const bool itself = tag.empty();  // the folder is the checkpoint
  std::optional<detail::VerifiedCheckpoint> checkpoint;
  all_or_none(ranks, [&] {
    if (itself) {
      const io::CheckpointPlace place = io::place_of_checkpoint(folder);
      checkpoints.folder = place.folder;
      tag = place.tag;
    }
    checkpoint.emplace(detail::verify_checkpoint(engine, checkpoints, tag));
  });
  require_same_on_all_ranks(ranks, "load_checkpoint", checkpoint->facts_of_files, ErrorCode::file);
  all_or_none(ranks, [&] {
    if (by_latest && !itself) detail::require_named(checkpoint->facts, checkpoints, tag, wanted.run);
  });
  engine.resume(checkpoint->facts.progress);  // first, since operations in flight read values
  all_or_none(ranks, [&] { detail::fill_from_checkpoint(engine, *checkpoint); });
  return {std::move(tag), checkpoint->facts.position, std::move(checkpoint->facts.client_state)};
}

}  // namespace dspp
