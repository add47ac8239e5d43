// SPDX-License-Identifier: Apache-2.0
// Larger tensor degrees, by hand: DSPP_RANDOM_ALL.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Tp<4>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<4>>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<5>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<5>>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<3>, SequenceParallel, RegatherInputs> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<3>, SequenceParallel, RegatherInputs>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<5>, SequenceParallel> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<5>, SequenceParallel>>(150);
}
