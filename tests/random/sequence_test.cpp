// SPDX-License-Identifier: Apache-2.0
// Random models on tensor ranks that split the sequence against one dense rank.
// labels: random
#include <laws/random_run.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Tp<2>, SequenceParallel, Zero<2>> equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>, SequenceParallel, Zero<2>>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<2>, SequenceParallel, RegatherInputs, Zero<1>> equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>, SequenceParallel, RegatherInputs, Zero<1>>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<3>, SequenceParallel, Zero<3>> equal one dense rank") {
  check_random_models<Policy<F64, Tp<3>, SequenceParallel, Zero<3>>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<4>, SequenceParallel> equal one dense rank") {
  check_random_models<Policy<F64, Tp<4>, SequenceParallel>>(150);
}
