// SPDX-License-Identifier: Apache-2.0
/// The model types of transformers that are a Llama with other options. Used by hugging_face_config.hpp alone.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <dspp/hub/hugging_face_fields.hpp>
#include <dspp/models/llama.hpp>

namespace dspp::hub::detail {

/// Which layers have a sliding window: none, all, or those from "max_window_layers" on.
enum class WindowFields { none, all_layers, last_layers };

/// A model type: transformers' values of missing fields, and the options that its models have.
struct LlamaFamily {
  const char* type;
  const char* architecture;
  Size kv_heads, head_dim, ffn_width, vocabulary, sequence;  ///< 0: as many as heads; width / heads
  bool qkv_bias, qk_norm;
  WindowFields windows;
  bool attention_bias;  ///< has a field of that name, of which dspp has false
};

inline constexpr std::array<LlamaFamily, 4> llama_families{
    {{"llama", "LlamaForCausalLM", 0, 0, 11008, 32000, 2048, false, false, WindowFields::none, true},
     {"mistral", "MistralForCausalLM", 8, 0, 14336, 32000, 131072, false, false, WindowFields::all_layers, false},
     {"qwen2", "Qwen2ForCausalLM", 32, 0, 22016, 151936, 32768, true, false, WindowFields::last_layers, false},
     {"qwen3", "Qwen3ForCausalLM", 32, 128, 22016, 151936, 32768, false, true, WindowFields::last_layers, true}}};

/// The family of a config.json; refuses other ones.
inline const LlamaFamily& read_family(const ConfigFields& fields);

/// Reads window and full_layers; refuses other patterns of layers.
inline void read_windows(const ConfigFields& fields, const LlamaFamily& family, LlamaConfig& config);

/// The family of that type, or if it is empty the first one, that has the options of the model.
///
/// Throws   Error(usage) if there is none
inline const LlamaFamily& family_of(const LlamaConfig& config, const std::string& type);

inline void add_window_members(std::map<std::string, std::string>& members, const LlamaFamily& family,
                               const LlamaConfig& config);

// ---------------------------------------------------------------------------------------------------------------------

inline const LlamaFamily& read_family(const ConfigFields& fields) {
  const auto& all = llama_families;
  const LlamaFamily& family =
      all[fields.require_word({"model_type"}, all[0].type, {all[0].type, all[1].type, all[2].type, all[3].type})];
  fields.require_architecture(family.architecture);
  fields.require_null("quantization_config", "weights that are not quantized");
  return family;
}

/// How many of the first layers see the whole sequence, if "layer_types" is there.
inline std::optional<Size> read_full_layers(const ConfigFields& fields, Size layers) {
  const auto types = fields.words("layer_types");
  if (!types) return std::nullopt;
  if (std::ssize(*types) != layers)
    fields.refuse("\"layer_types\" with a word for each of " + std::to_string(layers) + " layers",
                  "it has " + std::to_string(types->size()));
  Size full = 0;
  for (Size i = 0; i < layers; ++i) {
    const std::string& type = (*types)[static_cast<std::size_t>(i)];
    if (type != "full_attention" && type != "sliding_attention")
      fields.refuse("\"layer_types\" of \"full_attention\" and \"sliding_attention\"", "it has " + json_quoted(type));
    if (type == "sliding_attention") continue;
    if (full != i)
      fields.refuse("\"layer_types\" with every \"full_attention\" before every \"sliding_attention\"",
                    "layer " + std::to_string(i) + " is \"full_attention\" after a \"sliding_attention\"");
    ++full;
  }
  return full;
}

inline void read_windows(const ConfigFields& fields, const LlamaFamily& family, LlamaConfig& config) {
  constexpr Size usual = 4096, usual_layers = 28;
  const Size layers = config.layers;
  if (family.windows == WindowFields::none) {
    fields.require_null("sliding_window", "attention to the whole sequence");
    return;
  }
  const auto read_window = [&] {
    return fields.has("sliding_window") ? fields.size_or_null("sliding_window", 0) : usual;
  };
  if (family.windows == WindowFields::all_layers) {
    fields.require_null("layer_types", "one kind of attention");
    config.window = read_window();
    return;
  }
  if (fields.flag("use_sliding_window", false)) config.window = read_window();
  const std::optional<Size> listed = read_full_layers(fields, layers);
  if (config.window == 0 && listed && *listed != layers)
    fields.refuse("\"layer_types\" of \"full_attention\", since there is no \"sliding_window\" in use",
                  "it has \"sliding_attention\"");
  config.full_layers = listed ? *listed : fields.size_or_zero("max_window_layers", usual_layers);
  if (config.window == 0 || config.full_layers >= layers) config.window = config.full_layers = 0;
}

inline const LlamaFamily& family_of(const LlamaConfig& config, const std::string& type) {
  for (const LlamaFamily& family : llama_families) {
    const bool windows = config.window == 0 || family.windows == WindowFields::last_layers ||
                         (family.windows == WindowFields::all_layers && config.full_layers == 0);
    if ((type.empty() || type == family.type) && family.qkv_bias == config.qkv_bias &&
        family.qk_norm == config.qk_norm && windows)
      return family;
  }
  fail(ErrorCode::usage,
       "dspp: save_hugging_face needs a model type of transformers with the options of this model, but " +
           (type.empty() ? "none has" : json_quoted(type) + " has not") +
           " these qkv_bias, qk_norm, window and full_layers. Save with save_weights, or leave out model_type.");
}

inline void add_window_members(std::map<std::string, std::string>& members, const LlamaFamily& family,
                               const LlamaConfig& config) {
  const std::string window = config.window > 0 ? std::to_string(config.window) : "null";
  if (family.windows == WindowFields::none) return;
  members["sliding_window"] = window;
  if (family.windows == WindowFields::all_layers) return;
  const Size full = config.window > 0 ? std::min<Size>(config.full_layers, config.layers) : config.layers;
  std::vector<std::string> types;
  for (Size i = 0; i < config.layers; ++i)
    types.push_back(json_quoted(i < full ? "full_attention" : "sliding_attention"));
  members["layer_types"] = json_list_lines(types, 1);
  members["max_window_layers"] = std::to_string(full);
  members["use_sliding_window"] = config.window > 0 ? "true" : "false";
}

}  // namespace dspp::hub::detail
