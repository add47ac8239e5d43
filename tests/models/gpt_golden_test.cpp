// SPDX-License-Identifier: Apache-2.0
// A Gpt with the weights of a `transformers` GPT-2 gives its logits, its loss and all its gradients
// (tests/golden/README.md). labels: golden
#include <dspp/models/gpt.hpp>

#include <laws/golden_model.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// blocks.1.mlp.up.weight -> transformer.h.1.mlp.c_fc.weight
std::string hugging_face_name(std::string name) {
  const std::pair<const char*, const char*> words[] = {
      {"tokens", "wte"},    {"positions", "wpe"},   {"blocks", "h"},           {"norm1", "ln_1"},
      {"norm2", "ln_2"},    {"norm.", "ln_f."},     {"attention.", "attn."},   {"qkv", "c_attn"},
      {"output", "c_proj"}, {"mlp.up", "mlp.c_fc"}, {"mlp.down", "mlp.c_proj"}};
  for (const auto& [ours, theirs] : words)
    if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, std::string(ours).size(), theirs);
  return "transformer." + name;
}

struct Gpt2 {
  template <class P>
  using Model = Gpt<P>;
  static constexpr GptConfig config{.layers = 2, .width = 24, .heads = 12, .vocabulary = 61, .sequence = 16};
  static constexpr const char* prefix = "gpt2";
  static constexpr std::size_t parameters = 28;

  /// A tensor of the file in dspp's order: Conv1D keeps its weights as [in, out], Linear as [out, in].
  static std::vector<double> in_our_order(const io::SafetensorsReader& file, const std::string& prefix_of_name,
                                          const std::string& ours) {
    const std::string theirs = hugging_face_name(ours);
    const std::vector<double> values = values_of<double>(file, prefix_of_name + theirs);
    const bool conv1d = theirs.find(".c_") != std::string::npos && theirs.ends_with("weight");
    if (!conv1d) return values;
    const auto& extents = file.tensor(prefix_of_name + theirs).shape;
    const auto in = static_cast<std::size_t>(extents[0]), out = static_cast<std::size_t>(extents[1]);
    std::vector<double> transposed(values.size());
    for (std::size_t i = 0; i < in; ++i)
      for (std::size_t o = 0; o < out; ++o) transposed[o * in + i] = values[i * out + o];
    return transposed;
  }
};

}  // namespace

TEST_CASE("f64: logits, loss and all gradients equal those of transformers, on one rank to 1e-12") {
  check_golden<Gpt2, Policy<F64>>(1, 1e-12);
}

TEST_CASE("f64: they are the same over two and three tensor ranks") {
  check_golden<Gpt2, Policy<F64, Tp<2>>>(2, 1e-12);
  check_golden<Gpt2, Policy<F64, Zero<1>, Tp<3>>>(3, 1e-12);
}

TEST_CASE("f64: they are the same over two data ranks, and over two data by two tensor ranks with split sequences") {
  check_golden<Gpt2, Policy<F64, Zero<2>>>(2, 1e-12);
  check_golden<Gpt2, Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>(4, 1e-12);
}

TEST_CASE("f16 is within 1e-2 of the golden values, gradients with the loss scale taken out") {
  check_golden<Gpt2, Policy<F16>>(1, 1e-2);
}

TEST_CASE("f32 is within 1e-5 of the golden values, bf16 within 5e-2") {
  check_golden<Gpt2, Policy<F32>>(1, 1e-5);
  check_golden<Gpt2, Policy<Bf16>>(1, 5e-2);
}
