// SPDX-License-Identifier: Apache-2.0
// Random models on tensor ranks that split the sequence against one dense rank.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Tp<2>, SequenceParallel> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>, SequenceParallel>>(80);
}

TEST_CASE(
    "random models under Policy<F64, Tp<2>, SequenceParallel, RegatherInputs, SelectiveRecompute<Norms>, "
    "SelectiveRecompute<ActivationFunctions>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>, SequenceParallel, RegatherInputs, SelectiveRecompute<Norms>,
                             SelectiveRecompute<ActivationFunctions>>>(80);
}

TEST_CASE("random models under Policy<F64, Tp<3>, SequenceParallel> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<3>, SequenceParallel>>(80);
}

TEST_CASE("random models under Policy<F64, Tp<4>, SequenceParallel> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<4>, SequenceParallel>>(80);
}
