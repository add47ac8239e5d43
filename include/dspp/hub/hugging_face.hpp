// SPDX-License-Identifier: Apache-2.0
/// Weights of Hugging Face's GPT-2, Llama, Mistral, Qwen and BERT into a Gpt, a Llama and a Bert, and back, under any
/// strategy.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/comm/all_or_none.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/hub/hugging_face_bert.hpp>
#include <dspp/hub/hugging_face_config.hpp>
#include <dspp/hub/hugging_face_names.hpp>
#include <dspp/io/safetensors_folder.hpp>
#include <dspp/zero/full_tensors.hpp>

namespace dspp::hub {

/// Reads a folder of `save_pretrained`, model.safetensors or shards with their index: by name, fused projections
/// joined, Conv1D's weights transposed, converted to the policy's type and rounded to nearest even. The files are
/// mapped into memory; each rank reads the elements that it holds, and returns their bytes. The model changes only if
/// everything fits; then gradients and optimizer are reset. Call on every rank.
///
/// Cost     this rank's bytes from the disk; two all-gathers of one byte per rank
/// Throws   Error(file) if a tensor is missing, unexpected, of another shape or of an unsupported type, or if the
///          folder's config.json, if any, describes another model
///
/// A model of your own needs overloads of hugging_face_parts and hugging_face_extra for the type of its `config`, and,
/// if it has a config.json, of require_hugging_face_config and hugging_face_config.
template <class Engine>
Size load_hugging_face(Engine& engine, const std::string& directory, CallSite site = CallSite::here());

struct HuggingFaceOptions {
  /// The limit of a file's data, by default transformers' limit; a larger tensor has a file of its own.
  Size max_shard_bytes = 50'000'000'000;
  /// The only special tokens in config.json; read_hugging_face_tokens(folder) copies those of another folder.
  HuggingFaceTokens tokens{};
  /// Of a Llama: "llama", "mistral", "qwen2" or "qwen3", if it has the model's options; empty: the first of them that
  /// has. read_hugging_face_model_type(folder) is that of another folder.
  std::string model_type{};
};

/// Writes a folder for `from_pretrained`: config.json and model.safetensors, or shards with their index, with names,
/// shapes and element order of transformers, in the precision of the master weights. Every rank writes the elements of
/// its primary copies. The folder changes when all data are on the disk (SafetensorsFolderWriter). Call on every rank.
/// config.json holds the fields of the model and `options` alone, without those of an earlier one; other files stay.
///
/// Cost     this rank's share of the bytes, three barriers; a transposed weight in as many writes as it has inputs
/// Memory   for a transposed weight, as many elements as it has outputs, and 24 bytes for each run that the rank owns
/// Throws   Error(file); Error(usage) if transformers has no counterpart of a parameter; Error(state) if one is not
///          finite: the folder does not change
template <class Engine>
void save_hugging_face(Engine& engine, const std::string& directory, const HuggingFaceOptions& options = {},
                       CallSite site = CallSite::here());

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The tensors of one parameter in the files.
struct HuggingFaceSource {
  std::vector<io::StoredTensor> tensors;
  bool transposed = false;

  /// Elements [first, first + count) of the parameter, in dspp's order.
  template <class T>
  void read(Size first, Size count, T* out) const {
    if (transposed) return tensors[0].file->read_transposed_as(*tensors[0].entry, first, count, out);
    for_each_piece(first, count, [&](const io::StoredTensor& tensor, Size begin, Size n) {
      tensor.file->read_as(*tensor.entry, begin, n, out);
      out += n;
    });
  }

  void will_need(Size first, Size count) const {
    for_each_piece(first, count, [](const io::StoredTensor& tensor, Size begin, Size n) {
      tensor.file->will_need(*tensor.entry, begin, n);
    });
  }
  void will_need_all() const {
    for (const io::StoredTensor& tensor : tensors) tensor.file->will_need(*tensor.entry, 0, tensor.entry->count());
  }

 private:
  template <class F>
  void for_each_piece(Size first, Size count, F f) const {
    for (const io::StoredTensor& tensor : tensors) {
      const Size here = std::clamp<Size>(tensor.entry->count() - first, 0, count);
      if (here > 0) f(tensor, first, here);
      first = std::max<Size>(0, first - tensor.entry->count());
      count -= here;
    }
  }
};

[[noreturn]] inline void refuse_hugging_face(const io::SafetensorsFolder& folder, const std::string& why) {
  fail(ErrorCode::file, "dspp: load_hugging_face needs the weights of this model, but '" + folder.path() + "' " + why +
                            ". Load a checkpoint of the same configuration.");
}

/// A tensor by its name, or by its name without the first word: GPT2Model omits "transformer.".
inline io::StoredTensor find_hugging_face(const io::SafetensorsFolder& folder, const std::string& name) {
  constexpr std::string_view word = "transformer.";
  io::StoredTensor found = folder.find(name);
  if (!found.entry && name.starts_with(word)) found = folder.find(std::string_view(name).substr(word.size()));
  if (!found.entry) refuse_hugging_face(folder, "has no tensor '" + name + "'");
  found.file->require_convertible(*found.entry);
  return found;
}

/// The tensors of one parameter, if their shapes match its extents.
template <class Name>
HuggingFaceSource source_of(const io::SafetensorsFolder& folder, const HuggingFaceParts& parts, const Name& name) {
  if (parts.tensors.empty()) refuse_hugging_face(folder, "has no counterpart of the parameter '" + name.text + "'");
  HuggingFaceSource source{{}, parts.transposed};
  std::vector<Size> needed = name.extents;
  needed[0] /= static_cast<Size>(parts.tensors.size());
  if (parts.transposed) std::swap(needed[0], needed[1]);
  for (const std::string& tensor : parts.tensors) {
    source.tensors.push_back(find_hugging_face(folder, tensor));
    if (source.tensors.back().entry->shape != needed)
      refuse_hugging_face(folder, "has another shape for '" + tensor + "'");
  }
  return source;
}

/// The sources of all parameters, if the folder has their tensors and no others, but for a second copy of a head that
/// its config.json says is tied, which transformers ignores.
template <class Engine>
std::map<const void*, HuggingFaceSource> sources_of(Engine& engine, const io::SafetensorsFolder& folder,
                                                    bool said_to_be_tied) {
  const auto& config = engine.model().config;
  std::map<const void*, HuggingFaceSource> sources;
  std::set<const io::TensorEntry*> used;
  for (const auto& named : engine.inventory().parameters) {
    auto source = source_of(folder, hugging_face_parts(config, named.name->text), *named.name);
    for (const io::StoredTensor& tensor : source.tensors) used.insert(tensor.entry);
    sources.emplace(named.parameter, std::move(source));
  }
  for (const auto& [name, tensor] : folder.tensors())
    if (!used.contains(tensor.entry) && !hugging_face_extra(config, name) &&
        !(said_to_be_tied && name == "lm_head.weight"))
      refuse_hugging_face(folder, "has a tensor '" + name + "' that the model has not");
  return sources;
}

/// Requests read-ahead of this rank's part of a bucket.
template <class T, Device D>
void announce(const Bucket<T, D>& bucket, const Replicas<T, D>& replicas, int tp_rank,
              const std::map<const void*, HuggingFaceSource>& sources) {
  const Range held = replicas.held(bucket);
  bucket.for_each_part(held, [&](const ParameterBase<D>& p, Size begin, Size end) {
    const HuggingFaceSource& source = sources.at(&p.named());
    if (source.transposed) return source.will_need_all();  // a run is scattered over the whole tensor
    Size first = 0, count = 0;                             // of consecutive runs
    p.geometry.for_each_run(tp_rank, begin - p.offset, end - p.offset, [&](Size, Size global, Size n) {
      if (global != first + count) {
        source.will_need(first, count);
        first = global, count = 0;
      }
      count += n;
    });
    source.will_need(first, count);
  });
}

/// A Llama with tied embeddings.
template <class Engine>
HeadTable head_of(const Engine& engine) {
  for (const auto& named : engine.inventory().parameters)
    if (named.name->text == "head.weight") return HeadTable::own;
  return HeadTable::tied;
}

/// The tensors of one parameter in the file being written.
template <class Config, class Name>
std::vector<io::TensorSpec> specs_of(const Config& config, const Name& name, ElementType type) {
  const HuggingFaceParts parts = hugging_face_parts(config, name.text);
  if (parts.tensors.empty())
    fail(ErrorCode::usage, "dspp: save_hugging_face needs a counterpart of every parameter, but there is none of '" +
                               name.text + "'. Save with save_weights, or overload hugging_face_parts.");
  std::vector<Size> extents = name.extents;
  extents[0] /= static_cast<Size>(parts.tensors.size());
  if (parts.transposed) std::swap(extents[0], extents[1]);
  std::vector<io::TensorSpec> specs;
  for (const std::string& tensor : parts.tensors) specs.push_back({tensor, type, extents});
  return specs;
}

/// Elements [first, first + count) of a parameter.
template <class T>
struct OwnedRun {
  Size first = 0, count = 0;
  const T* data = nullptr;
};

/// A copy of a run.
template <class T>
struct KeptRun {
  Size first = 0, count = 0;
  std::vector<T> data;
};

/// Writes runs of a [out, in] matrix to a tensor [in, out], one write per input for consecutive outputs.
template <class T>
void write_transposed(io::SafetensorsFolderWriter& writer, const io::TensorSpec& spec,
                      const std::vector<KeptRun<T>>& runs) {
  const Size in = spec.shape[0], outputs = spec.shape[1];
  std::vector<T> row(static_cast<std::size_t>(outputs));
  for (Size i = 0; i < in; ++i) {
    Size begin = 0, end = 0;  // the outputs in `row`
    const auto write_row = [&] {
      if (begin < end) writer.write(spec.name, i * outputs + begin, end - begin, row.data());
    };
    for (const KeptRun<T>& run : runs) {
      // the outputs o for which element o in + i is in the run
      const Size from = std::max<Size>(0, (run.first - i + in - 1) / in),
                 to = (run.first + run.count - i + in - 1) / in;
      if (from >= to) continue;
      if (from != end) {
        write_row();
        begin = from;
      }
      for (Size o = from; o < to; ++o)
        row[static_cast<std::size_t>(o - begin)] = run.data[static_cast<std::size_t>(o * in + i - run.first)];
      end = to;
    }
    write_row();
  }
}

/// Writes a run of a parameter whose groups are consecutive tensors.
template <class T>
void write_run(io::SafetensorsFolderWriter& writer, const std::vector<io::TensorSpec>& specs, OwnedRun<T> run) {
  for (const io::TensorSpec& spec : specs) {
    Size whole = 1;
    for (const Size extent : spec.shape) whole *= extent;
    const Size here = std::clamp<Size>(whole - run.first, 0, run.count);
    if (here > 0) writer.write(spec.name, run.first, here, run.data);
    run = {std::max<Size>(0, run.first - whole), run.count - here, run.data + here};
  }
}

}  // namespace detail

template <class Engine>
void save_hugging_face(Engine& engine, const std::string& directory, const HuggingFaceOptions& options, CallSite site) {
  CalledAt here(site);
  using State = Compute<typename Engine::T>;
  const auto& config = engine.model().config;
  std::vector<io::TensorSpec> all;
  std::map<const void*, std::vector<io::TensorSpec>> specs;
  for (const auto& named : engine.inventory().parameters) {
    auto& own = specs[named.parameter] = detail::specs_of(config, *named.name, element_type<State>);
    all.insert(all.end(), own.begin(), own.end());
  }
  std::map<std::string, std::string> texts;
  if constexpr (requires { hugging_face_config(config, HuggingFaceWords{}); })
    texts["config.json"] = hugging_face_config(config, {.type = element_type<State>,
                                                        .head = detail::head_of(engine),
                                                        .tokens = options.tokens,
                                                        .model_type = options.model_type});
  require_finite_parameters(engine, "saving");
  auto& world = engine.world();
  io::SafetensorsFolderWriter writer(directory, all, options.max_shard_bytes);
  if (world.is_first()) writer.create();
  world.host().barrier();
  const auto write = [&](const auto& named) {
    const auto& own = specs.at(named.parameter);
    const bool transposed = hugging_face_parts(config, named.name->text).transposed;
    std::vector<detail::KeptRun<State>> runs;
    for_each_owned_run(engine, named, [&](Size first, Size count, const State* data) {
      if (transposed)
        runs.push_back({first, count, {data, data + count}});
      else
        detail::write_run<State>(writer, own, {first, count, data});
    });
    if (transposed) detail::write_transposed(writer, own[0], runs);
  };
  read_state(engine, [&] {
    for (const auto& named : engine.inventory().parameters) write(named);
  });
  writer.flush();
  world.host().barrier();
  if (world.is_first()) writer.commit(texts);
  world.host().barrier();
}

template <class Engine>
Size load_hugging_face(Engine& engine, const std::string& directory, CallSite site) {
  CalledAt here(site);
  const auto& config = engine.model().config;
  auto& ranks = engine.world().host();
  std::optional<io::SafetensorsFolder> folder;
  std::map<const void*, detail::HuggingFaceSource> sources;
  all_or_none(ranks, [&] {
    bool said_to_be_tied = false;
    if constexpr (requires { require_hugging_face_config(config, HeadTable::own, directory); }) {
      const HeadTable head = detail::head_of(engine);
      require_hugging_face_config(config, head, directory);
      said_to_be_tied = head == HeadTable::tied && detail::has_config(directory);
    }
    folder.emplace(directory);
    sources = detail::sources_of(engine, *folder, said_to_be_tied);
  });
  require_same_on_all_ranks(ranks, "load_hugging_face", folder->facts(), ErrorCode::file);
  all_or_none(ranks, [&] {
    const int tp_rank = engine.world().tp_rank();
    for (auto* unit : engine.units())
      for (auto& b : unit->buckets()) {
        detail::announce(b, engine.replicas(), tp_rank, sources);
        fill_parameters(engine, b, Range{0, b.count}, [&](const auto& p, Size first, Size count, auto* values) {
          sources.at(&p).read(first, count, values);
        });
      }
    settle_files(engine);
  });
  if constexpr (requires { engine.restart(0); }) engine.state().note_load(), engine.restart(0);
  return folder->bytes_read();
}

}  // namespace dspp::hub
