// SPDX-License-Identifier: Apache-2.0
/// Hugging Face's BERT for masked tokens: its config.json, to and from BertConfig, and the names of its parameters.
#pragma once

#include <string>
#include <string_view>

#include <dspp/hub/hugging_face_config.hpp>
#include <dspp/hub/hugging_face_names.hpp>
#include <dspp/models/bert.hpp>

namespace dspp::hub {

/// Reads directory/config.json of a BERT. Missing fields have transformers' defaults; dropout rates are ignored.
///
/// Throws   Error(file), which names the field, its value and what is supported
BertConfig read_bert_config(const std::string& directory);

/// The same from the file's text. `who` begins a sentence.
BertConfig parse_bert_config(std::string_view json, const std::string& who);

/// The file's text as transformers writes it.
std::string hugging_face_config(const BertConfig& config, const HuggingFaceWords& words = {});

/// Checks that directory/config.json, if it exists, describes a model equivalent to this one.
///
/// Throws   Error(file), which names the first field that differs
void require_hugging_face_config(const BertConfig& config, HeadTable head, const std::string& directory);

/// blocks.3.attention.qkv.weight of a Bert -> those of query, key and value in bert.encoder.layer.3.attention.self.
inline HuggingFaceParts hugging_face_parts(const BertConfig& config, std::string_view name);

/// True for tensors of such files that a Bert has not: second copies of tied ones, and the heads of other tasks.
inline bool hugging_face_extra(const BertConfig&, std::string_view tensor) {
  return tensor.starts_with("cls.predictions.decoder.") || tensor.starts_with("cls.seq_relationship.") ||
         tensor.starts_with("bert.pooler.") || tensor == "bert.embeddings.position_ids";
}

// ---------------------------------------------------------------------------------------------------------------------

inline BertConfig parse_bert_config(std::string_view text, const std::string& who) {
  const io::Json json = io::parse_json(text, who);
  const detail::ConfigFields fields(json, who);
  detail::require_family(fields, "bert", "BertForMaskedLM");
  fields.require_word({"hidden_act"}, "gelu", {"gelu", "gelu_python"});
  fields.require_word({"position_embedding_type"}, "absolute", {"absolute"});
  fields.require_flag("tie_word_embeddings", true);
  fields.require_flag("is_decoder", false);
  fields.require_flag("add_cross_attention", false);
  BertConfig config;
  config.layers = static_cast<int>(fields.size({"num_hidden_layers"}, 12));
  config.width = fields.size({"hidden_size"}, 768);
  config.heads = fields.size({"num_attention_heads"}, 12);
  config.ffn_width = fields.size({"intermediate_size"}, 3072);
  config.vocabulary = fields.size({"vocab_size"}, 30522);
  config.sequence = fields.size({"max_position_embeddings"}, 512);
  config.token_types = fields.size({"type_vocab_size"}, 2);
  config.epsilon = fields.real("layer_norm_eps", 1e-12, 0, 1);
  config.init_std = fields.real("initializer_range", 0.02, 0, 1e6);
  if (config.ffn_width == 4 * config.width) config.ffn_width = 0;
  if (config.width % config.heads != 0)
    fields.refuse("a \"hidden_size\" that \"num_attention_heads\" divides",
                  "they are " + std::to_string(config.width) + " and " + std::to_string(config.heads));
  return config;
}

inline BertConfig read_bert_config(const std::string& directory) {
  const std::string path = detail::config_path(directory);
  return parse_bert_config(io::read_text_file(path, detail::config_bytes_limit), "'" + path + "'");
}

inline std::string hugging_face_config(const BertConfig& config, const HuggingFaceWords& words) {
  auto members = detail::common_members("bert", "BertForMaskedLM", words);
  if (words.tokens.pad < 0) members["pad_token_id"] = "null";  // transformers' default is 0
  members["add_cross_attention"] = "false";
  members["attention_probs_dropout_prob"] = "0.0";
  members["hidden_act"] = "\"gelu\"";
  members["hidden_dropout_prob"] = "0.0";
  members["hidden_size"] = std::to_string(config.width);
  members["initializer_range"] = json_real(config.init_std);
  members["intermediate_size"] = std::to_string(config.effective_ffn_width());
  members["is_decoder"] = "false";
  members["layer_norm_eps"] = json_real(config.epsilon);
  members["max_position_embeddings"] = std::to_string(config.sequence);
  members["num_attention_heads"] = std::to_string(config.heads);
  members["num_hidden_layers"] = std::to_string(config.layers);
  members["tie_word_embeddings"] = "true";
  members["type_vocab_size"] = std::to_string(config.token_types);
  members["vocab_size"] = std::to_string(config.vocabulary);
  return json_lines(members) + "\n";
}

inline void require_hugging_face_config(const BertConfig& config, HeadTable, const std::string& directory) {
  if (!detail::has_config(directory)) return;
  const BertConfig file = read_bert_config(directory);
  const auto same = [&](const char* field, auto theirs, auto ours) {
    detail::require_same(detail::config_path(directory), field, static_cast<double>(theirs), static_cast<double>(ours));
  };
  same("num_hidden_layers", file.layers, config.layers);
  same("hidden_size", file.width, config.width);
  same("num_attention_heads", file.heads, config.heads);
  same("intermediate_size", file.effective_ffn_width(), config.effective_ffn_width());
  same("vocab_size", file.vocabulary, config.vocabulary);
  same("max_position_embeddings", file.sequence, config.sequence);
  same("type_vocab_size", file.token_types, config.token_types);
  same("layer_norm_eps", file.epsilon, config.epsilon);
}

inline HuggingFaceParts hugging_face_parts(const BertConfig&, std::string_view name) {
  static constexpr std::array<detail::HuggingFaceWord, 13> words{
      {{"tokens", "bert.embeddings.word_embeddings"},
       {"positions", "bert.embeddings.position_embeddings"},
       {"token_types", "bert.embeddings.token_type_embeddings"},
       {"norm", "bert.embeddings.LayerNorm"},
       {"head", "cls.predictions.transform.dense"},
       {"head_norm", "cls.predictions.transform.LayerNorm"},
       {"decoder", "cls.predictions"},
       {"attention.qkv", "attention.self.query", "attention.self.key", false, "attention.self.value"},
       {"attention.output", "attention.output.dense"},
       {"norm1", "attention.output.LayerNorm"},
       {"mlp.up", "intermediate.dense"},
       {"mlp.down", "output.dense"},
       {"norm2", "output.LayerNorm"}}};
  return detail::parts_of(name, words, "bert.encoder.layer.");
}

}  // namespace dspp::hub
