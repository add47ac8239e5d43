// SPDX-License-Identifier: Apache-2.0
// The two towers of examples/models, which meet over the global batch, give PyTorch's gradients and losses.
// labels: golden
#include <laws/own_goldens.hpp>
#include <laws/own_model_golden.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("two towers in f64: gradients and ten losses equal PyTorch's to 1e-9 on 1, 2 and 4 ranks, under Tp and Cp") {
  check_own_golden<SmallTowers, Policy<F64>>(1, 1e-9);
  check_own_golden<SmallTowers, Policy<F64>>(2, 1e-9);
  check_far_golden<SmallTowers, Zero<3>>(4, 1e-9);
  check_own_golden<SmallTowers, Policy<F64, Zero<1>, Tp<2>, SequenceParallel>>(4, 1e-9);
  check_own_golden<SmallTowers, Policy<F64, Zero<2>, Cp<2>>>(4, 1e-9);
}
