// SPDX-License-Identifier: Apache-2.0
// The bits of stages on tensor and context ranks, by hand: DSPP_RANDOM_ALL.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<Bf16, Tp<2>, SequenceParallel> end with the bits of other stages") {
  check_random_bits<Policy<Bf16, Tp<2>, SequenceParallel>>(60);
}

TEST_CASE("random models under Policy<Bf16, Cp<2>, Gradients<F32>> end with the bits of other stages") {
  check_random_bits<Policy<Bf16, Cp<2>, Gradients<F32>>>(60);
}

TEST_CASE("random models under Policy<F16, Tp<3>> end with the bits of other stages") {
  check_random_bits<Policy<F16, Tp<3>>>(60);
}

TEST_CASE("random models under Policy<F32, Cp<2>, Tp<2>, SequenceParallel> end with the bits of other stages") {
  check_random_bits<Policy<F32, Cp<2>, Tp<2>, SequenceParallel>>(60);
}
