// SPDX-License-Identifier: Apache-2.0
// Random models on data ranks, under every ZeRO stage, against one dense rank.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64> and a stage equal one dense rank") {
  check_random_models<Policy<F64>>(150);
}

TEST_CASE("random models under Policy<F64>, a stage and Sgd, which has no moments, equal one dense rank") {
  check_random_models<Policy<F64>, Sgd>(40);
}

TEST_CASE("random models with a batch of their own under Policy<F64> and a stage equal one dense rank") {
  check_random_own_models<Policy<F64>>(60);
}
