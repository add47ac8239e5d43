// SPDX-License-Identifier: Apache-2.0
/// The names of the parameters of a GPT-2 and of a Llama, Mistral or Qwen in Hugging Face's `transformers`.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/models/gpt.hpp>
#include <dspp/models/llama.hpp>

namespace dspp::hub {

/// A parameter in Hugging Face's files: one tensor, or one tensor for each of its groups, in order.
struct HuggingFaceParts {
  std::vector<std::string> tensors;  ///< none: transformers has no such parameter
  bool transposed = false;           ///< [in, out], as in Conv1D; Linear has [out, in]
};

/// blocks.3.attention.qkv.weight of a Gpt -> transformer.h.3.attn.c_attn.weight, transposed. The first word is missing
/// in files of a GPT2Model.
inline HuggingFaceParts hugging_face_parts(const GptConfig& config, std::string_view name);

/// blocks.3.mlp.gate_up.weight of a Llama -> model.layers.3.mlp.gate_proj.weight, model.layers.3.mlp.up_proj.weight.
inline HuggingFaceParts hugging_face_parts(const LlamaConfig& config, std::string_view name);

/// True for tensors of such files that hold no parameter: masks, angles, and GPT-2's second copy of the tied embedding.
inline bool hugging_face_extra(const GptConfig&, std::string_view tensor) {
  return tensor == "lm_head.weight" || tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias");
}
inline bool hugging_face_extra(const LlamaConfig&, std::string_view tensor) {
  return tensor.ends_with("rotary_emb.inv_freq");
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// One layer's names: in dspp, in transformers, and in transformers for the second and the third group.
struct HuggingFaceWord {
  std::string_view ours, theirs, second = {};
  bool transposed = false;
  std::string_view third = {};
};

/// blocks.3.mlp.up.weight as "3", "mlp.up" and "weight"; outside the blocks the number is empty.
struct SplitName {
  std::string_view block, layer, last;

  explicit SplitName(std::string_view name) {
    constexpr std::string_view blocks = "blocks.";
    if (name.starts_with(blocks)) {
      name.remove_prefix(blocks.size());
      const auto dot = name.find('.');
      block = name.substr(0, dot);
      name.remove_prefix(dot == std::string_view::npos ? name.size() : dot + 1);
    }
    const auto dot = name.rfind('.');
    layer = name.substr(0, dot);
    last = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  }
};

/// The tensors of a name by a table of layer names; `stem` precedes the block number.
template <std::size_t Count>
HuggingFaceParts parts_of(std::string_view name, const std::array<HuggingFaceWord, Count>& words,
                          std::string_view stem) {
  const SplitName split(name);
  const std::string before = split.block.empty() ? "" : std::string(stem) + std::string(split.block) + ".";
  for (const HuggingFaceWord& word : words) {
    if (word.ours != split.layer) continue;
    const std::string last = "." + std::string(split.last);
    HuggingFaceParts parts{{before + std::string(word.theirs) + last}, word.transposed && split.last == "weight"};
    for (const std::string_view more : {word.second, word.third})
      if (!more.empty()) parts.tensors.push_back(before + std::string(more) + last);
    return parts;
  }
  return {};
}

}  // namespace detail

inline HuggingFaceParts hugging_face_parts(const GptConfig&, std::string_view name) {
  static constexpr std::array<detail::HuggingFaceWord, 9> words{{{"tokens", "transformer.wte"},
                                                                 {"positions", "transformer.wpe"},
                                                                 {"norm", "transformer.ln_f"},
                                                                 {"norm1", "ln_1"},
                                                                 {"norm2", "ln_2"},
                                                                 {"attention.qkv", "attn.c_attn", {}, true},
                                                                 {"attention.output", "attn.c_proj", {}, true},
                                                                 {"mlp.up", "mlp.c_fc", {}, true},
                                                                 {"mlp.down", "mlp.c_proj", {}, true}}};
  return detail::parts_of(name, words, "transformer.h.");
}

inline HuggingFaceParts hugging_face_parts(const LlamaConfig&, std::string_view name) {
  static constexpr std::array<detail::HuggingFaceWord, 12> words{
      {{"tokens", "model.embed_tokens"},
       {"norm", "model.norm"},
       {"head", "lm_head"},
       {"norm1", "input_layernorm"},
       {"norm2", "post_attention_layernorm"},
       {"attention.q", "self_attn.q_proj"},
       {"attention.kv", "self_attn.k_proj", "self_attn.v_proj"},
       {"attention.q_norm", "self_attn.q_norm"},
       {"attention.k_norm", "self_attn.k_norm"},
       {"attention.output", "self_attn.o_proj"},
       {"mlp.gate_up", "mlp.gate_proj", "mlp.up_proj"},
       {"mlp.down", "mlp.down_proj"}}};
  return detail::parts_of(name, words, "model.layers.");
}

}  // namespace dspp::hub
