// SPDX-License-Identifier: Apache-2.0
/// Weights of Hugging Face's GPT-2 and Llama into a Gpt and a Llama, under any strategy.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <dspp/engine/full_tensors.hpp>
#include <dspp/io/safetensors.hpp>
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

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

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
    const Size begin = first / in, end = (first + count + in - 1) / in;
    std::vector<T> row(static_cast<std::size_t>(end - begin));
    for (Size i = 0; i < in; ++i) {
      file.read_as(*tensors[0], i * outputs + begin, end - begin, row.data());
      for (Size o = begin; o < end; ++o)
        if (const Size at = o * in + i - first; at >= 0 && at < count)
          out[at] = row[static_cast<std::size_t>(o - begin)];
    }
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

}  // namespace detail

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
