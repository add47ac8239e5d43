// SPDX-License-Identifier: Apache-2.0
/// Weights of Hugging Face's GPT-2 and Llama into a Gpt and a Llama, and back, under any strategy.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <dspp/engine/checkpoint.hpp>
#include <dspp/models/hugging_face.hpp>

namespace dspp {

/// Reads directory/model.safetensors as `save_pretrained` writes it: by name, fused projections put together, Conv1D's
/// weights transposed, converted to the policy's type and rounded to nearest even. Each rank reads what it holds, of a
/// transposed weight the columns that it holds. Nothing is changed unless everything fits; then gradients and the
/// optimizer start anew. Call on every rank.
///
/// Memory   for a transposed weight, as many elements as it has outputs
/// Throws   Error(file), a sentence, if a tensor is missing, unexpected, of another shape or of a type dspp has not
///
/// The configuration is the caller's: what shapes do not tell (heads, theta, epsilon) is not checked. A model of one's
/// own takes part by overloads of hugging_face_parts and hugging_face_extra for the type of its `config`.
template <class Engine>
void load_hugging_face(Engine& engine, const std::string& directory);

/// Writes directory/model.safetensors with the names, shapes and order of elements that `transformers` reads, in the
/// precision of the masters: every rank the elements that it answers for, the file under its name when it is complete.
/// Call on every rank. `config.json` is not written.
///
/// Cost     this rank's share of the bytes, three barriers; a transposed weight in as many writes as it has inputs
/// Throws   Error(file); Error(usage) if transformers has no counterpart of a parameter
template <class Engine>
void save_hugging_face(Engine& engine, const std::string& directory);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// A run of elements of a [out, in] matrix, as it lies in [in, out].
struct TransposedRun {
  Size in = 0, out = 0, first = 0, count = 0;

  /// Calls f(place in [in, out], how many, place in the run) for each input's elements of the run; the latter are `in`
  /// apart.
  template <class F>
  void for_each_row(F f) const {
    for (Size i = 0; i < in; ++i) {
      const Size begin = std::max<Size>(0, (first - i + in - 1) / in), end = (first + count - i + in - 1) / in;
      if (begin < end) f(i * out + begin, end - begin, begin * in + i - first);
    }
  }
};

/// A parameter's tensors in a file.
struct HuggingFaceSource {
  std::vector<const TensorEntry*> tensors;
  bool transposed = false;

  /// Elements [first, first + count) of the parameter, in our order.
  template <class T>
  void read(const SafetensorsReader& file, Size first, Size count, T* out) const {
    if (transposed) return read_transposed(file, first, count, out);
    for (const TensorEntry* tensor : tensors) {
      const Size here = std::clamp<Size>(tensor->count() - first, 0, count);
      if (here > 0) file.read_as(*tensor, first, here, out);
      first = std::max<Size>(0, first - tensor->count());
      count -= here, out += here;
    }
  }

 private:
  /// Element (o, i) of ours is (i, o) of theirs: the columns in question, row by row.
  template <class T>
  void read_transposed(const SafetensorsReader& file, Size first, Size count, T* out) const {
    const Size in = tensors[0]->shape[0], outputs = tensors[0]->shape[1];
    std::vector<T> row(static_cast<std::size_t>(outputs));
    TransposedRun{in, outputs, first, count}.for_each_row([&](Size theirs, Size n, Size ours) {
      file.read_as(*tensors[0], theirs, n, row.data());
      for (Size o = 0; o < n; ++o) out[ours + o * in] = row[static_cast<std::size_t>(o)];
    });
  }
};

[[noreturn]] inline void refuse_hugging_face(const SafetensorsReader& file, const std::string& why) {
  fail(ErrorCode::file, "dspp: load_hugging_face needs the weights of this model, but '" + file.path() + "' " + why +
                            ". Load a checkpoint of the same configuration.");
}

/// A tensor by its name, or by the name without its first word: GPT2Model writes no "transformer.".
inline const TensorEntry& find_hugging_face(const SafetensorsReader& file, const std::string& name) {
  constexpr std::string_view word = "transformer.";
  const TensorEntry* found = file.find(name);
  if (!found && name.starts_with(word)) found = file.find(std::string_view(name).substr(word.size()));
  if (!found) refuse_hugging_face(file, "has no tensor '" + name + "'");
  file.require_convertible(*found);
  return *found;
}

/// The tensors of one parameter, if their shapes make up its extents.
template <class Name>
HuggingFaceSource source_of(const SafetensorsReader& file, const HuggingFaceParts& parts, const Name& name) {
  if (parts.tensors.empty()) refuse_hugging_face(file, "has no counterpart of the parameter '" + name.text + "'");
  HuggingFaceSource source{{}, parts.transposed};
  std::vector<Size> needed = name.extents;
  needed[0] /= static_cast<Size>(parts.tensors.size());
  if (parts.transposed) std::swap(needed[0], needed[1]);
  for (const std::string& tensor : parts.tensors) {
    source.tensors.push_back(&find_hugging_face(file, tensor));
    if (source.tensors.back()->shape != needed) refuse_hugging_face(file, "has another shape for '" + tensor + "'");
  }
  return source;
}

/// A parameter's tensors in a file that is written.
template <class Config, class Name>
std::vector<TensorSpec> specs_of(const Config& config, const Name& name, ElementType type) {
  const HuggingFaceParts parts = hugging_face_parts(config, name.text);
  if (parts.tensors.empty())
    fail(ErrorCode::usage, "dspp: save_hugging_face needs a counterpart of every parameter, but there is none of '" +
                               name.text + "'. Save with save_weights, or overload hugging_face_parts.");
  std::vector<Size> extents = name.extents;
  extents[0] /= static_cast<Size>(parts.tensors.size());
  if (parts.transposed) std::swap(extents[0], extents[1]);
  std::vector<TensorSpec> specs;
  for (const std::string& tensor : parts.tensors) specs.push_back({tensor, type, extents});
  return specs;
}

/// Writes elements [first, first + count) of a parameter.
template <class T>
void write_parts(SafetensorsWriter& writer, const std::vector<TensorSpec>& specs, bool transposed, Size first,
                 Size count, const T* data) {
  if (transposed) {
    const Size in = specs[0].shape[0], outputs = specs[0].shape[1];
    std::vector<T> row(static_cast<std::size_t>(outputs));
    return TransposedRun{in, outputs, first, count}.for_each_row([&](Size theirs, Size n, Size ours) {
      for (Size o = 0; o < n; ++o) row[static_cast<std::size_t>(o)] = data[ours + o * in];
      writer.write(specs[0].name, theirs, n, row.data());
    });
  }
  for (const TensorSpec& spec : specs) {
    Size whole = 1;
    for (const Size extent : spec.shape) whole *= extent;
    const Size here = std::clamp<Size>(whole - first, 0, count);
    if (here > 0) writer.write(spec.name, first, here, data);
    first = std::max<Size>(0, first - whole);
    count -= here, data += here;
  }
}

}  // namespace detail

template <class Engine>
void save_hugging_face(Engine& engine, const std::string& directory) {
  using State = Compute<typename Engine::T>;
  const auto& config = engine.model().config;
  std::vector<TensorSpec> all;
  std::map<const void*, std::vector<TensorSpec>> specs;
  for (const auto& named : engine.inventory().parameters) {
    auto& own = specs[named.parameter] = detail::specs_of(config, named.name, element_type<State>);
    all.insert(all.end(), own.begin(), own.end());
  }
  auto& world = engine.world();
  SafetensorsWriter writer(directory + "/model.safetensors", all);
  detail::create_in(writer, world, directory);
  for (const auto& named : engine.inventory().parameters) {
    const bool transposed = hugging_face_parts(config, named.name.text).transposed;
    for_each_owned_run(engine, named, [&](Size first, Size count, const State* data) {
      detail::write_parts(writer, specs.at(named.parameter), transposed, first, count, data);
    });
  }
  detail::commit_together(writer, world);
}

template <class Engine>
void load_hugging_face(Engine& engine, const std::string& directory) {
  const SafetensorsReader file(directory + "/model.safetensors");
  const auto& config = engine.model().config;
  std::map<const void*, detail::HuggingFaceSource> sources;
  std::vector<const TensorEntry*> used;
  for (const auto& named : engine.inventory().parameters) {
    auto source = detail::source_of(file, hugging_face_parts(config, named.name.text), named.name);
    used.insert(used.end(), source.tensors.begin(), source.tensors.end());
    sources.emplace(named.parameter, std::move(source));
  }
  for (const TensorEntry& tensor : file.tensors())
    if (std::find(used.begin(), used.end(), &tensor) == used.end() && !hugging_face_extra(config, tensor.name))
      detail::refuse_hugging_face(file, "has a tensor '" + tensor.name + "' that the model has not");
  for (auto* unit : engine.units())
    for (auto& b : unit->buckets())
      fill_bucket(b, engine.replicas(), engine.world().place().tp,
                  [&](const auto& p, Size first, Size count, auto* values) {
                    sources.at(&p).read(file, first, count, values);
                  });
  engine.restart(0);
}

}  // namespace dspp
