// SPDX-License-Identifier: Apache-2.0
// Random models on data ranks against one dense rank.
// labels: random
#include <laws/random_run.hpp>

using namespace dspp;
using namespace dspp::laws;

template struct dspp::laws::RandomRunner<Policy<F64>>;

TEST_CASE("random models under Policy<F64> equal one dense rank") {
  check_random_models<Policy<F64>>(150);
}

TEST_CASE("random models under Policy<F64, Zero<1>> equal one dense rank") {
  check_random_models<Policy<F64, Zero<1>>>(150);
}

TEST_CASE("random models under Policy<F64, Zero<2>> equal one dense rank") {
  check_random_models<Policy<F64, Zero<2>>>(150);
}

TEST_CASE("random models under Policy<F64, Zero<3>> equal one dense rank") {
  check_random_models<Policy<F64, Zero<3>>>(150);
}
