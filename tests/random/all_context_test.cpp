// SPDX-License-Identifier: Apache-2.0
// Larger context degrees, by hand: DSPP_RANDOM_ALL.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Cp<4>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<4>>>(150);
}

TEST_CASE("random models under Policy<F64, Cp<5>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<5>>>(150);
}

TEST_CASE("random models under Policy<F64, Cp<3>, Tp<2>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<3>, Tp<2>>>(150);
}

TEST_CASE("random models under Policy<F64, Cp<2>, Tp<3>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<2>, Tp<3>>>(150);
}
