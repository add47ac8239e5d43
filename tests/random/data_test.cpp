// SPDX-License-Identifier: Apache-2.0
// Random models on data ranks, under every ZeRO stage, against one dense rank; and random blends and buckets, whose
// samples come in the order of one rank. (A file of their own would read all headers once more.)
// labels: random
#include <laws/random_laws.hpp>
#include <laws/random_sources.hpp>

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

TEST_CASE("random sources under Policy<F64> have the order of one rank, and are resumed in it") {
  check_random_sources<Policy<F64>>(100);
}

TEST_CASE("random sources under Policy<F64, Cp<2>> have the order of one rank, and are resumed in it") {
  check_random_sources<Policy<F64, Cp<2>>>(40);
}
