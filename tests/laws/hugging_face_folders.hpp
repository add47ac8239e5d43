// SPDX-License-Identifier: Apache-2.0
/// The golden models of tests/golden/README.md, their folders and logits.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/hub/hugging_face.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/llama.hpp>

#include <laws/folder.hpp>
#include <laws/golden_model.hpp>

namespace dspp::laws {

/// The models of tests/golden/README.md.
inline constexpr GptConfig golden_gpt2{.layers = 2, .width = 24, .heads = 12, .vocabulary = 61, .sequence = 16};
inline constexpr LlamaConfig golden_llama{.layers = 2,
                                          .width = 24,
                                          .heads = 12,
                                          .kv_heads = 6,
                                          .head_dim = 4,
                                          .ffn_width = 48,
                                          .vocabulary = 61,
                                          .rope_theta = 100,
                                          .epsilon = 1e-5,
                                          .sequence = 16};

template <class P>
using TiedGoldenLlama = Llama<P, LlamaBlock<P>, TiedHead<P>>;

/// f(world, engine) on every rank, with an engine whose buckets cut parameters.
template <class Model>
void with_engine(int ranks, const auto& config, const auto& f) {
  using P = typename Model::policy;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine<Model, AdamW> engine(world, Model(config), AdamW{}, EngineConfig{.bucket_bytes = 3000});
    f(world, engine);
  });
}

/// Logits of the golden batch, [batch, sequence, vocabulary]: each rank fills in its part.
using GoldenLogits = std::array<double, static_cast<std::size_t>(golden_batch* golden_sequence* golden_vocabulary)>;

template <class P, class Engine>
void fill_logits(World<P>& world, Engine& engine, const io::SafetensorsReader& golden, GoldenLogits& out) {
  constexpr Size sequence = golden_sequence, vocabulary = golden_vocabulary;
  const Size own = golden_batch / world.data_size(), first = own * world.data_rank();
  using D = DeviceOf<P>;
  auto ids = Tensor<std::int32_t, 2, D>::uninitialized(shape(own, sequence), world.memory());
  ids.write(
      [&](std::int32_t* host) { golden.read(golden.tensor("input_ids"), first * sequence, own * sequence, host); });
  const auto logits =
      engine.no_grad([&](const auto& model, Tape<D>& tape) { return model(Tokens<P>::constant(ids, tape)).value(); });
  const Size columns = logits[-1], first_column = columns * world.tp_rank();
  logits.read([&](const auto* host) {
    for (Size i = 0; i < own * sequence; ++i)
      for (Size j = 0; j < columns && first_column + j < vocabulary; ++j)
        out[static_cast<std::size_t>((first * sequence + i) * vocabulary + first_column + j)] =
            static_cast<double>(host[i * columns + j]);
  });
}

/// A folder with golden weights as model.safetensors, without those of which `leave_out` is the name.
inline void put_golden_weights(const Folder& folder, const std::string& file, std::string_view leave_out = "") {
  const io::SafetensorsReader golden = open_golden(file);
  std::vector<io::TensorSpec> specs;
  for (const io::TensorEntry& tensor : golden.tensors())
    if (tensor.name != leave_out) specs.push_back({tensor.name, ElementType::f64, tensor.shape});
  io::SafetensorsWriter writer(folder.file("model.safetensors"), specs);
  writer.create();
  for (const io::TensorSpec& spec : specs) {
    const auto values = values_of<double>(golden, spec.name);
    writer.write(spec.name, 0, std::ssize(values), values.data());
  }
  writer.commit();
}

/// The 64-bit hash of Fowler, Noll and Vo (FNV-1a), in hexadecimal digits.
inline std::string hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += digits[(hash >> shift) & 15];
  return text;
}

}  // namespace dspp::laws
