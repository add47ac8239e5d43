// SPDX-License-Identifier: Apache-2.0
// Bert gives PyTorch's gradients and losses. labels: golden
#include <dspp/models/bert.hpp>
#include <laws/own_model_golden.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct SmallBert {
  template <class P>
  using Model = Bert<P>;
  static constexpr BertConfig config{.layers = 2, .width = 16, .vocabulary = 61, .sequence = 10};
  static constexpr const char* file = "bert_golden.safetensors";
  static constexpr Size samples = 4, sequence = 8, targets = 7;
  static void fill(auto& batch, auto& world, const io::SafetensorsReader& golden) {
    fill_field(batch.tokens, world, golden, "tokens");
    fill_field(batch.token_types, world, golden, "token_types");
    fill_field(batch.lengths, world, golden, "lengths");
    fill_field(batch.labels, world, golden, "labels");
  }
};

}  // namespace

TEST_CASE("BERT in f64: gradients and ten losses equal PyTorch's to 1e-9 under every strategy") {
  check_own_golden<SmallBert, Policy<F64>>(1, 1e-9);
  check_own_golden<SmallBert, Policy<F64, Zero<3>>>(2, 1e-9);
  check_far_golden<SmallBert, Zero<1>, Tp<2>, SequenceParallel>(2, 1e-9);
  check_own_golden<SmallBert, Policy<F64, Zero<2>, Cp<2>>>(4, 1e-9);
}

TEST_CASE("BERT in bf16 is within 5e-2") {
  check_own_golden<SmallBert, Policy<Bf16, Zero<3>, Tp<2>>>(2, 5e-2);
}
