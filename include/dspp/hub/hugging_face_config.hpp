// SPDX-License-Identifier: Apache-2.0
/// config.json of Hugging Face's GPT-2, Llama, Mistral, Qwen2 and Qwen3, to and from GptConfig and LlamaConfig.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include <dspp/hub/hugging_face_families.hpp>
#include <dspp/hub/hugging_face_fields.hpp>
#include <dspp/hub/hugging_face_rope.hpp>
#include <dspp/hub/hugging_face_tokens.hpp>
#include <dspp/io/text_file.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/llama.hpp>

namespace dspp::hub {

/// The weight of a Llama's output head: its own (UntiedHead), or the embedding's (TiedHead).
enum class HeadTable { own, tied };

/// Reads directory/config.json of a GPT-2. Missing fields have transformers' defaults; fields that Gpt does not support
/// are errors. `dropout` is resid_pdrop; other dropout rates are ignored.
///
/// Throws   Error(file), which names the field, its value and what is supported
GptConfig read_gpt2_config(const std::string& directory);

/// Reads directory/config.json of a Llama, Mistral, Qwen2 or Qwen3, whose head must match `head`. Mistral's and Qwen's
/// windows, Qwen2's biases and Qwen3's norms are options of a Llama.
///
/// Throws   Error(file), which names the field, its value and what is supported
LlamaConfig read_llama_config(const std::string& directory, HeadTable head = HeadTable::own);

/// The "model_type" of directory/config.json, to give it to save_hugging_face: a Mistral without a window would be
/// written as a Llama. Empty if there is none.
std::string read_hugging_face_model_type(const std::string& directory);

/// The same from the file's text. `who` begins a sentence.
GptConfig parse_gpt2_config(std::string_view json, const std::string& who);
LlamaConfig parse_llama_config(std::string_view json, const std::string& who, HeadTable head = HeadTable::own);

/// The fields of a config.json that are not in a model's configuration.
struct HuggingFaceWords {
  ElementType type = ElementType::f32;  ///< of the weights
  HeadTable head = HeadTable::own;
  HuggingFaceTokens tokens{};
  std::string model_type{};  ///< empty: the first of Llama, Mistral, Qwen2 and Qwen3 that has the model's options
};

/// The file's text as transformers writes it.
std::string hugging_face_config(const GptConfig& config, const HuggingFaceWords& words = {});
std::string hugging_face_config(const LlamaConfig& config, const HuggingFaceWords& words = {});

/// Checks that directory/config.json, if it exists, describes a model equivalent to this one.
///
/// Throws   Error(file), which names the first field that differs
void require_hugging_face_config(const GptConfig& config, HeadTable head, const std::string& directory);
void require_hugging_face_config(const LlamaConfig& config, HeadTable head, const std::string& directory);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The name of an element type in transformers.
constexpr const char* torch_type(ElementType type) {
  switch (type) {
    case ElementType::f64: return "float64";
    case ElementType::bf16: return "bfloat16";
    case ElementType::f16: return "float16";
    default: return "float32";
  }
}

/// The members common to both families.
inline std::map<std::string, std::string> common_members(const char* type, const char* architecture,
                                                         const HuggingFaceWords& words) {
  std::map<std::string, std::string> members{{"architectures", json_list_lines({json_quoted(architecture)}, 1)},
                                             {"dtype", json_quoted(torch_type(words.type))},
                                             {"model_type", json_quoted(type)},
                                             {"use_cache", "true"}};
  add_token_members(members, words.tokens);
  return members;
}

/// Refuses other model families and unsupported weight types.
inline void require_family(const ConfigFields& fields, const char* type, const char* architecture) {
  fields.require_word({"model_type"}, type, {type});
  fields.require_architecture(architecture);
  fields.require_null("quantization_config", "weights that are not quantized");
}

inline void require_same(const std::string& path, const std::string& field, const std::string& file,
                         const std::string& model) {
  if (file == model) return;
  fail(ErrorCode::file, "dspp: load_hugging_face needs the configuration of this model, but '" + path + "' has " +
                            field + " " + file + " and the model " + model +
                            ". Make the model from read_gpt2_config, read_llama_config or read_bert_config.");
}

inline void require_same(const std::string& path, const std::string& field, double file, double model) {
  const auto text = [](double value) {
    const std::string real = json_real(value);
    return real.ends_with(".0") ? real.substr(0, real.size() - 2) : real;
  };
  if (file != model) require_same(path, field, text(file), text(model));
}

/// The first field of the scaling that differs.
inline void require_same_scaling(const std::string& path, const RopeScaling& file, const RopeScaling& model) {
  const auto word = [](const RopeScaling& scaling) {
    return std::string(rope_words[static_cast<std::size_t>(scaling.kind)]);
  };
  require_same(path, "rope_type", word(file), word(model));
  std::vector<double> models;
  model.describe([&](const char*, auto value) { models.push_back(static_cast<double>(value)); });
  std::size_t next = 0;
  file.describe(
      [&](const char* name, auto value) { require_same(path, name, static_cast<double>(value), models[next++]); });
}

inline bool has_config(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::exists(config_path(directory), ignored);
}

}  // namespace detail

inline GptConfig parse_gpt2_config(std::string_view text, const std::string& who) {
  const io::Json json = io::parse_json(text, who);
  const detail::ConfigFields fields(json, who);
  detail::require_family(fields, "gpt2", "GPT2LMHeadModel");
  fields.require_word({"activation_function"}, "gelu_new", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  fields.require_flag("tie_word_embeddings", true);
  fields.require_flag("is_causal", true);
  fields.require_flag("scale_attn_weights", true);
  fields.require_flag("scale_attn_by_inverse_layer_idx", false);
  fields.require_flag("add_cross_attention", false);
  GptConfig config;
  config.layers = static_cast<int>(fields.size({"n_layer", "num_hidden_layers"}, 12));
  config.width = fields.size({"n_embd", "hidden_size"}, 768);
  config.heads = fields.size({"n_head", "num_attention_heads"}, 12);
  config.vocabulary = fields.size({"vocab_size"}, 50257);
  config.sequence = fields.size({"n_positions", "max_position_embeddings"}, 1024);
  config.ffn_width = fields.size_or_null("n_inner", 0);
  config.epsilon = fields.real("layer_norm_epsilon", 1e-5, 0, 1);
  config.init_std = fields.real("initializer_range", 0.02, 0, 1e6);
  config.dropout = fields.real("resid_pdrop", 0.1, 0, 0.999);
  if (config.ffn_width == 4 * config.width) config.ffn_width = 0;
  if (config.width % config.heads != 0)
    fields.refuse("an \"n_embd\" that \"n_head\" divides",
                  "they are " + std::to_string(config.width) + " and " + std::to_string(config.heads));
  return config;
}

inline LlamaConfig parse_llama_config(std::string_view text, const std::string& who, HeadTable head) {
  const io::Json json = io::parse_json(text, who);
  const detail::ConfigFields fields(json, who);
  const detail::LlamaFamily& family = detail::read_family(fields);
  fields.require_word({"hidden_act"}, "silu", {"silu", "swish"});
  if (family.attention_bias) fields.require_flag("attention_bias", false);
  fields.require_flag("mlp_bias", false);
  fields.require_flag("is_causal", true);
  if (fields.flag("tie_word_embeddings", false) != (head == HeadTable::tied))
    fields.refuse(head == HeadTable::tied
                      ? "\"tie_word_embeddings\" that is true, since the model's head is tied"
                      : "\"tie_word_embeddings\" that is false, since the model has a head of its own",
                  head == HeadTable::tied ? "it is false" : "it is true");
  LlamaConfig config;
  config.layers = static_cast<int>(fields.size({"num_hidden_layers"}, 32));
  config.width = fields.size({"hidden_size"}, 4096);
  config.heads = fields.size({"num_attention_heads"}, 32);
  config.kv_heads = fields.has("num_key_value_heads") ? fields.size_or_null("num_key_value_heads", config.heads)
                    : family.kv_heads > 0             ? family.kv_heads
                                                      : config.heads;
  config.ffn_width = fields.size({"intermediate_size"}, family.ffn_width);
  config.vocabulary = fields.size({"vocab_size"}, family.vocabulary);
  config.sequence = fields.size({"max_position_embeddings"}, family.sequence);
  config.epsilon = fields.real("rms_norm_eps", 1e-6, 0, 1);
  config.init_std = fields.real("initializer_range", 0.02, 0, 1e6);
  const detail::RotaryFields rotary = detail::read_rotary(fields, config.sequence);
  config.rope_theta = rotary.theta, config.rope_scaling = rotary.scaling;
  config.head_dim = fields.has("head_dim") ? fields.size_or_null("head_dim", 0) : family.head_dim;
  config.qkv_bias = family.qkv_bias, config.qk_norm = family.qk_norm;
  detail::read_windows(fields, family, config);
  const auto refuse = [&](const char* needs, Size a, Size b) {
    fields.refuse(needs, "they are " + std::to_string(a) + " and " + std::to_string(b));
  };
  if (config.head_dim == 0) {
    if (config.width % config.heads != 0)
      refuse("a \"hidden_size\" that \"num_attention_heads\" divides", config.width, config.heads);
    config.head_dim = config.width / config.heads;
  }
  if (config.heads % config.kv_heads != 0)
    refuse("\"num_attention_heads\" that \"num_key_value_heads\" divides", config.heads, config.kv_heads);
  if (config.head_dim % 2 != 0)
    fields.refuse("heads of an even number of features, which turn in pairs",
                  "\"head_dim\" is " + std::to_string(config.head_dim));
  if (config.head_dim == 2 && config.rope_scaling.kind == RopeKind::dynamic)
    fields.refuse("a \"head_dim\" above 2 for \"dynamic\" angles", "it is 2");
  return config;
}

inline GptConfig read_gpt2_config(const std::string& directory) {
  const std::string path = detail::config_path(directory);
  return parse_gpt2_config(io::read_text_file(path, detail::config_bytes_limit), "'" + path + "'");
}

inline LlamaConfig read_llama_config(const std::string& directory, HeadTable head) {
  const std::string path = detail::config_path(directory);
  return parse_llama_config(io::read_text_file(path, detail::config_bytes_limit), "'" + path + "'", head);
}

inline std::string read_hugging_face_model_type(const std::string& directory) {
  const std::string path = detail::config_path(directory), who = "'" + path + "'";
  const std::string text = io::read_text_file(path, detail::config_bytes_limit);
  return detail::ConfigFields(io::parse_json(text, who), who).word_or_empty("model_type");
}

inline std::string hugging_face_config(const GptConfig& config, const HuggingFaceWords& words) {
  auto members = detail::common_members("gpt2", "GPT2LMHeadModel", words);
  members["activation_function"] = "\"gelu_new\"";
  members["attn_pdrop"] = "0.0";
  members["embd_pdrop"] = json_real(config.dropout);
  members["initializer_range"] = json_real(config.init_std);
  members["layer_norm_epsilon"] = json_real(config.epsilon);
  members["n_embd"] = std::to_string(config.width);
  members["n_head"] = std::to_string(config.heads);
  members["n_inner"] =
      config.ffn_width > 0 && config.ffn_width != 4 * config.width ? std::to_string(config.ffn_width) : "null";
  members["n_layer"] = std::to_string(config.layers);
  members["n_positions"] = std::to_string(config.sequence);
  members["resid_pdrop"] = json_real(config.dropout);
  members["scale_attn_by_inverse_layer_idx"] = "false";
  members["scale_attn_weights"] = "true";
  members["tie_word_embeddings"] = "true";
  members["vocab_size"] = std::to_string(config.vocabulary);
  return json_lines(members) + "\n";
}

inline std::string hugging_face_config(const LlamaConfig& config, const HuggingFaceWords& words) {
  const detail::LlamaFamily& family = detail::family_of(config, words.model_type);
  const Size width_of_head = config.width / config.heads,
             head_dim = config.head_dim > 0 ? config.head_dim : width_of_head;
  auto members = detail::common_members(family.type, family.architecture, words);
  if (family.attention_bias) members["attention_bias"] = "false";
  members["attention_dropout"] = "0.0";
  members["head_dim"] = std::to_string(head_dim);
  members["hidden_act"] = "\"silu\"";
  members["hidden_size"] = std::to_string(config.width);
  members["initializer_range"] = json_real(config.init_std);
  members["intermediate_size"] = std::to_string(config.effective_ffn_width());
  // from which dynamic angles change
  members["max_position_embeddings"] = std::to_string(
      config.rope_scaling.kind == RopeKind::dynamic ? config.rope_scaling.original_sequence : config.sequence);
  if (family.type == std::string_view("llama")) members["mlp_bias"] = "false";
  members["num_attention_heads"] = std::to_string(config.heads);
  members["num_hidden_layers"] = std::to_string(config.layers);
  members["num_key_value_heads"] = std::to_string(config.kv_heads > 0 ? config.kv_heads : config.heads);
  members["rms_norm_eps"] = json_real(config.epsilon);
  detail::add_rotary_members(members, {config.rope_theta, config.rope_scaling});
  detail::add_window_members(members, family, config);
  members["tie_word_embeddings"] = words.head == HeadTable::tied ? "true" : "false";
  members["vocab_size"] = std::to_string(config.vocabulary);
  return json_lines(members) + "\n";
}

inline void require_hugging_face_config(const GptConfig& config, HeadTable, const std::string& directory) {
  if (!detail::has_config(directory)) return;
  const GptConfig file = read_gpt2_config(directory);
  const auto same = [&](const char* field, auto theirs, auto ours) {
    detail::require_same(detail::config_path(directory), field, static_cast<double>(theirs), static_cast<double>(ours));
  };
  same("n_layer", file.layers, config.layers);
  same("n_embd", file.width, config.width);
  same("n_head", file.heads, config.heads);
  same("vocab_size", file.vocabulary, config.vocabulary);
  same("n_positions", file.sequence, config.sequence);
  same("n_inner", file.effective_ffn_width(), config.effective_ffn_width());
  same("layer_norm_epsilon", file.epsilon, config.epsilon);
}

inline void require_hugging_face_config(const LlamaConfig& config, HeadTable head, const std::string& directory) {
  if (!detail::has_config(directory)) return;
  const LlamaConfig file = read_llama_config(directory, head);
  const auto same = [&](const char* field, auto theirs, auto ours) {
    detail::require_same(detail::config_path(directory), field, static_cast<double>(theirs), static_cast<double>(ours));
  };
  same("num_hidden_layers", file.layers, config.layers);
  same("hidden_size", file.width, config.width);
  same("num_attention_heads", file.heads, config.heads);
  same("num_key_value_heads", file.kv_heads, config.kv_heads > 0 ? config.kv_heads : config.heads);
  same("head_dim", file.head_dim, config.head_dim > 0 ? config.head_dim : config.width / config.heads);
  same("intermediate_size", file.ffn_width, config.effective_ffn_width());
  same("vocab_size", file.vocabulary, config.vocabulary);
  same("rope_theta", file.rope_theta, config.rope_theta);
  detail::require_same_scaling(detail::config_path(directory), file.rope_scaling, config.rope_scaling);
  same("sliding_window", file.window, config.window);
  same("max_window_layers", file.full_layers, config.window > 0 ? config.full_layers : 0);
  same("rms_norm_eps", file.epsilon, config.epsilon);
}

}  // namespace dspp::hub
