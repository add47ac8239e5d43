// SPDX-License-Identifier: Apache-2.0
/// Folders that dspp writes of the golden models, checked with transformers (tests/golden/check_hugging_face.py).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <dspp/hub/hugging_face.hpp>
#include <dspp/hub/hugging_face_bert.hpp>
#include <dspp/models/bert.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/llama.hpp>

#include <laws/folder.hpp>
#include <laws/golden_model.hpp>
#include <laws/hugging_face_folders.hpp>

namespace dspp::laws {

/// Writes directory/<name>_logits.safetensors: what dspp computes with a folder, and the integers that it takes.
inline void write_logits(const std::string& directory, const std::string& name, const GoldenLogits& logits,
                         const io::SafetensorsReader& golden, const std::vector<std::string>& integers) {
  std::vector<io::TensorSpec> specs{{"logits", ElementType::f64, {golden_batch, golden_sequence, golden_vocabulary}}};
  for (const std::string& field : integers) specs.push_back({field, ElementType::i32, golden.tensor(field).shape});
  io::SafetensorsWriter writer(directory + "/" + name + "_logits.safetensors", specs);
  writer.create();
  writer.write("logits", 0, std::ssize(logits), logits.data());
  for (const std::string& field : integers) {
    const auto values = values_of<std::int32_t>(golden, field);
    writer.write(field, 0, std::ssize(values), values.data());
  }
  writer.commit();
}

/// Writes directory/<name>, the folder of a model with the weights in `weights`, and its logits.
template <class Model>
void write_hugging_face_folder(const std::string& directory, const std::string& name, const auto& config,
                               const std::string& weights, const std::string& golden,
                               const hub::HuggingFaceOptions& options) {
  const io::SafetensorsReader expected = open_golden(golden);
  GoldenLogits logits{};
  with_engine<Model>(1, config, [&](auto& world, auto& engine) {
    hub::load_hugging_face(engine, weights);
    hub::save_hugging_face(engine, directory + "/" + name, options);
    fill_logits(world, engine, expected, logits);
  });
  write_logits(directory, name, logits, expected, {"input_ids"});
}

/// The same of a folder of transformers, with its tokens and model type.
template <class Model>
void write_folder_again(const std::string& directory, const std::string& name, hub::HeadTable head) {
  const std::string theirs = std::string(DSPP_TESTS_DIRECTORY) + "/golden/hub/" + name;
  write_hugging_face_folder<Model>(
      directory, name, hub::read_llama_config(theirs, head), theirs, "hub/" + name + "_expected.safetensors",
      {.tokens = hub::read_hugging_face_tokens(theirs), .model_type = hub::read_hugging_face_model_type(theirs)});
}

/// A BERT's, with token types and lengths.
template <class P>
void write_bert_again(const std::string& directory) {
  const std::string theirs = std::string(DSPP_TESTS_DIRECTORY) + "/golden/hub/bert";
  const io::SafetensorsReader expected = open_golden("hub/bert_expected.safetensors");
  GoldenLogits logits{};
  with_engine<Bert<P>>(1, hub::read_bert_config(theirs), [&](auto& world, auto& engine) {
    hub::load_hugging_face(engine, theirs);
    hub::save_hugging_face(engine, directory + "/bert", {.tokens = hub::read_hugging_face_tokens(theirs)});
    auto batch =
        engine.model().new_batch(BatchSizes{.micro_batch = golden_batch, .sequence = golden_sequence}, world.memory());
    const auto fill = [&](auto& field, const char* name) {
      field.value().write(
          [&](std::int32_t* out) { expected.read(expected.tensor(name), 0, field.value().count(), out); });
    };
    fill(batch.tokens, "input_ids"), fill(batch.token_types, "token_type_ids"), fill(batch.lengths, "lengths");
    batch.labels.value().fill(ignored_target);
    engine.no_grad([&](const auto& model, Tape<Cpu>& tape) {
      const auto own = model.logits(on_tape(batch, tape)).value();
      for (Size i = 0; i < own.count(); ++i) logits[static_cast<std::size_t>(i)] = static_cast<double>(own.data()[i]);
      return 0;
    });
  });
  write_logits(directory, "bert", logits, expected, {"input_ids", "token_type_ids", "lengths"});
}

/// In f32: GPT-2 and Llama in one file and in shards, a Llama whose head is tied, and the folders of golden/hub.
inline void write_hugging_face_folders(const std::string& directory) {
  using P = Policy<F32>;
  const Folder gpt2_folder, llama_folder, tied_folder;
  put_golden_weights(gpt2_folder, "gpt2_weights.safetensors");
  put_golden_weights(llama_folder, "llama_weights.safetensors");
  put_golden_weights(tied_folder, "llama_weights.safetensors", "lm_head.weight");
  const std::string gpt2 = gpt2_folder.path.string(), llama = llama_folder.path.string();
  const hub::HuggingFaceOptions whole{.tokens = {.begin = 0, .end = {60}}}, shards{.max_shard_bytes = 30'000};
  const std::string of_gpt2 = "gpt2_expected.safetensors", of_llama = "llama_expected.safetensors";
  write_hugging_face_folder<Gpt<P>>(directory, "gpt2", golden_gpt2, gpt2, of_gpt2, whole);
  write_hugging_face_folder<Gpt<P>>(directory, "gpt2_shards", golden_gpt2, gpt2, of_gpt2, shards);
  write_hugging_face_folder<Llama<P>>(directory, "llama", golden_llama, llama, of_llama, whole);
  write_hugging_face_folder<Llama<P>>(directory, "llama_shards", golden_llama, llama, of_llama, shards);
  write_hugging_face_folder<TiedGoldenLlama<P>>(directory, "llama_tied", golden_llama, tied_folder.path.string(),
                                                of_llama, whole);
  for (const char* name : {"llama3", "mistral", "qwen2"})
    write_folder_again<Llama<P>>(directory, name, hub::HeadTable::own);
  write_folder_again<TiedGoldenLlama<P>>(directory, "qwen3", hub::HeadTable::tied);
  write_bert_again<P>(directory);
}

}  // namespace dspp::laws
