// SPDX-License-Identifier: Apache-2.0
// Random models on tensor ranks against one dense rank.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Tp<2>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>>>(80);
}

TEST_CASE(
    "random models with a batch of their own under Policy<F64, Tp<2>, SelectiveRecompute<ActivationFunctions>> and a "
    "stage equal one dense rank") {
  check_random_own_models<Policy<F64, Tp<2>, SelectiveRecompute<ActivationFunctions>>>(40);
}

TEST_CASE("random models under Policy<F64, Tp<3>, SelectiveRecompute<Norms>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Tp<3>, SelectiveRecompute<Norms>>>(80);
}

TEST_CASE("random models under Policy<F64, Tp<2>>, a stage and Muon equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>>, Muon>(40);
}

TEST_CASE("random models under Policy<F64, Tp<2>>, a stage and Lamb equal one dense rank") {
  check_random_models<Policy<F64, Tp<2>>, Lamb>(40);
}
