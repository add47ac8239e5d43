// SPDX-License-Identifier: Apache-2.0
// Random models on tensor ranks against one dense rank.
// labels: random
#include <laws/random_run.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Tp<2>> equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<2>, Zero<3>> equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>, Zero<3>>>(150);
}

TEST_CASE("random models under Policy<F64, Tp<3>, Zero<1>> equal one dense rank") {
  check_random_models<Policy<F64, Tp<3>, Zero<1>>>(150);
}
