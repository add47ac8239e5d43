// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/hub/hugging_face_names.hpp>

using namespace dspp;

namespace {
template <class Config>
std::string parts(const char* name) {
  const hub::HuggingFaceParts found = hub::hugging_face_parts(Config{}, name);
  std::string text = found.transposed ? "transposed " : "";
  for (const auto& tensor : found.tensors) text += tensor + " ";
  return text;
}
}  // namespace

TEST_CASE("a Gpt's parameters have GPT-2's names") {
  CHECK(parts<GptConfig>("tokens.weight") == "transformer.wte.weight ");
  CHECK(parts<GptConfig>("norm.bias") == "transformer.ln_f.bias ");
  CHECK(parts<GptConfig>("blocks.11.norm2.weight") == "transformer.h.11.ln_2.weight ");
  CHECK(parts<GptConfig>("blocks.0.attention.qkv.weight") == "transposed transformer.h.0.attn.c_attn.weight ");
  CHECK(parts<GptConfig>("blocks.0.attention.qkv.bias") == "transformer.h.0.attn.c_attn.bias ");
  CHECK(parts<GptConfig>("blocks.10.mlp.down.weight") == "transposed transformer.h.10.mlp.c_proj.weight ");
}

TEST_CASE("a Llama's parameters have Llama's names, a fused one the names of its groups") {
  CHECK(parts<LlamaConfig>("head.weight") == "lm_head.weight ");
  CHECK(parts<LlamaConfig>("norm.weight") == "model.norm.weight ");
  CHECK(parts<LlamaConfig>("blocks.3.norm1.weight") == "model.layers.3.input_layernorm.weight ");
  CHECK(parts<LlamaConfig>("blocks.31.attention.kv.weight") ==
        "model.layers.31.self_attn.k_proj.weight model.layers.31.self_attn.v_proj.weight ");
  CHECK(parts<LlamaConfig>("blocks.0.mlp.gate_up.weight") ==
        "model.layers.0.mlp.gate_proj.weight model.layers.0.mlp.up_proj.weight ");
}

TEST_CASE("a parameter without a counterpart in Hugging Face has no name") {
  for (const char* name : {"", "blocks", "blocks.0", "blocks.0.gate.weight", "positions.weight", "weight"})
    CHECK(parts<LlamaConfig>(name).empty());
}
