// SPDX-License-Identifier: Apache-2.0
// Context ranks beside tensor ranks that split the sequence, by hand: DSPP_RANDOM_ALL.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE(
    "random models under Policy<F64, Cp<2>, Tp<2>, SequenceParallel, RegatherInputs> and a stage equal one dense "
    "rank") {
  check_random_models<Policy<F64, Cp<2>, Tp<2>, SequenceParallel, RegatherInputs>>(150);
}

TEST_CASE("random models under Policy<F64, Cp<3>, Tp<2>, SequenceParallel> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<3>, Tp<2>, SequenceParallel>>(150);
}

TEST_CASE(
    "random models under Policy<F64, Cp<2>, Tp<3>, SequenceParallel, RegatherInputs> and a stage equal one dense "
    "rank") {
  check_random_models<Policy<F64, Cp<2>, Tp<3>, SequenceParallel, RegatherInputs>>(150);
}
