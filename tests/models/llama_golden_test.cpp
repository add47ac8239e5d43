// SPDX-License-Identifier: Apache-2.0
// A Llama with the weights of a `transformers` LlamaForCausalLM gives its logits, its loss and all its gradients
// (tests/golden/README.md). labels: golden
#include <dspp/models/llama.hpp>
#include <dspp/models/recompute.hpp>

#include <laws/golden_model.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The tensors of one dspp parameter: a fused projection is its groups in order.
/// blocks.1.mlp.gate_up.weight -> model.layers.1.mlp.gate_proj.weight, model.layers.1.mlp.up_proj.weight
std::vector<std::string> hugging_face_names(const std::string& ours) {
  if (ours == "head.weight") return {"lm_head.weight"};
  if (ours == "tokens.weight") return {"model.embed_tokens.weight"};
  if (ours == "norm.weight") return {"model.norm.weight"};
  const auto after = ours.find('.', 7);  // blocks.1
  const std::string block = "model.layers." + ours.substr(7, after - 7) + ".", rest = ours.substr(after + 1);
  const std::map<std::string, std::vector<std::string>> parts = {
      {"norm1.weight", {"input_layernorm"}},
      {"norm2.weight", {"post_attention_layernorm"}},
      {"attention.q.weight", {"self_attn.q_proj"}},
      {"attention.kv.weight", {"self_attn.k_proj", "self_attn.v_proj"}},
      {"attention.output.weight", {"self_attn.o_proj"}},
      {"mlp.gate_up.weight", {"mlp.gate_proj", "mlp.up_proj"}},
      {"mlp.down.weight", {"mlp.down_proj"}}};
  std::vector<std::string> names;
  for (const auto& part : parts.at(rest)) names.push_back(block + part + ".weight");
  return names;
}

struct SmallLlama {
  template <class P>
  using Model = Llama<P>;
  static constexpr LlamaConfig config{.layers = 2,
                                      .width = 24,
                                      .heads = 12,
                                      .kv_heads = 6,
                                      .head_dim = 4,
                                      .ffn_width = 48,
                                      .vocabulary = 61,
                                      .rope_theta = 100,
                                      .epsilon = 1e-5};
  static constexpr const char* prefix = "llama";
  static constexpr std::size_t parameters = 17;

  static std::vector<double> in_our_order(const io::SafetensorsReader& file, const std::string& prefix_of_name,
                                          const std::string& ours) {
    std::vector<double> whole;
    for (const auto& theirs : hugging_face_names(ours)) {
      const auto part = values_of<double>(file, prefix_of_name + theirs);
      whole.insert(whole.end(), part.begin(), part.end());
    }
    return whole;
  }
};

struct RecomputedLlama : SmallLlama {
  template <class P>
  using Model = Llama<P, Recompute<LlamaBlock<P>>>;
};

}  // namespace

TEST_CASE("f64: logits, loss and all gradients equal those of transformers' Llama, on one rank to 1e-12") {
  check_golden<SmallLlama, Policy<F64>>(1, 1e-12);
  check_golden<RecomputedLlama, Policy<F64>>(1, 1e-12);
}

TEST_CASE("f64: a Llama's are the same over two and three tensor ranks") {
  check_golden<SmallLlama, Policy<F64, Tp<2>>>(2, 1e-12);
  check_golden<SmallLlama, Policy<F64, Zero<1>, Tp<3>>>(3, 1e-12);
}

TEST_CASE("f64: a Llama's are the same over two data ranks, and over two by two with split sequences") {
  check_golden<SmallLlama, Policy<F64, Zero<2>>>(2, 1e-12);
  check_golden<SmallLlama, Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>(4, 1e-12);
  check_golden<SmallLlama, Policy<F64, Zero<3>, Tp<2>, SequenceParallel, RegatherInputs>>(4, 1e-12);
}

TEST_CASE("a Llama in f32 is within 1e-5 of the golden values, in bf16 within 5e-2") {
  check_golden<SmallLlama, Policy<F32>>(1, 1e-5);
  check_golden<SmallLlama, Policy<Bf16>>(1, 5e-2);
}
