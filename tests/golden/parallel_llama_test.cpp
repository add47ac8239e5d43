// SPDX-License-Identifier: Apache-2.0
// The Llama of parallel blocks of examples/models gives PyTorch's gradients and losses. labels: golden
#include <laws/own_model_golden.hpp>

#include "../../examples/models/parallel_llama.hpp"

using namespace dspp;
using namespace dspp::laws;

namespace {

struct ParallelLlama {
  template <class P>
  using Model = dspp::parallel_llama::ParallelLlama<P>;
  static constexpr dspp::parallel_llama::Config config{.width = 16,
                                                       .ffn_width = 24,
                                                       .vocabulary = 61,
                                                       .rope_theta = 100,
                                                       .score_cap = 2,
                                                       .logit_cap = 3,
                                                       .label_smoothing = 0.1};
  static constexpr const char* file = "parallel_llama_golden.safetensors";
  static constexpr Size samples = 4, sequence = 8, targets = 26;
};

}  // namespace

TEST_CASE("a Llama of parallel blocks in f64: gradients and ten losses equal PyTorch's to 1e-9 under every strategy") {
  check_own_golden<ParallelLlama, Policy<F64>>(1, 1e-9);
  check_far_golden<ParallelLlama, Zero<3>>(2, 1e-9);
  check_own_golden<ParallelLlama, Policy<F64, Zero<1>, Tp<2>, SequenceParallel>>(2, 1e-9);
  check_own_golden<ParallelLlama, Policy<F64, Zero<2>, Cp<2>>>(4, 1e-9);
}

TEST_CASE("a Llama of parallel blocks in bf16 is within 5e-2") {
  check_own_golden<ParallelLlama, Policy<Bf16, Zero<3>, Tp<2>>>(2, 5e-2);
}
