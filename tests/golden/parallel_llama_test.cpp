// SPDX-License-Identifier: Apache-2.0
// The Llama of parallel blocks of examples/models gives PyTorch's gradients and losses. labels: golden
#include <laws/own_goldens.hpp>
#include <laws/own_model_golden.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("a Llama of parallel blocks in f64: gradients and ten losses equal PyTorch's to 1e-9 under every strategy") {
  check_own_golden<SmallParallelLlama, Policy<F64>>(1, 1e-9);
  check_far_golden<SmallParallelLlama, Zero<3>>(2, 1e-9);
  check_own_golden<SmallParallelLlama, Policy<F64, Zero<1>, Tp<2>, SequenceParallel>>(2, 1e-9);
  check_own_golden<SmallParallelLlama, Policy<F64, Zero<2>, Cp<2>>>(4, 1e-9);
}

TEST_CASE("a Llama of parallel blocks in bf16 is within 5e-2") {
  check_own_golden<SmallParallelLlama, Policy<Bf16, Zero<3>, Tp<2>>>(2, 5e-2);
}
