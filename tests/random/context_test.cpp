// SPDX-License-Identifier: Apache-2.0
// Random models on context ranks against one dense rank. What docs/placement.md calls open is not drawn: own layers
// that read along the sequence in their tensors without whole_sequences. And random blends and buckets, whose samples
// come in the order of one rank.
// labels: random
#include <laws/random_laws.hpp>
#include <laws/random_sources.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Cp<2>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<2>>>(80);
}

TEST_CASE("random models with a batch of their own under Policy<F64, Cp<2>> and a stage equal one dense rank") {
  check_random_own_models<Policy<F64, Cp<2>>>(40);
}

TEST_CASE("random models under Policy<F64, Cp<3>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<3>>>(80);
}

TEST_CASE("random models under Policy<F64, Cp<2>, Tp<2>> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<2>, Tp<2>>>(80);
}

TEST_CASE("random models under Policy<F64, Cp<2>, Tp<2>, SequenceParallel> and a stage equal one dense rank") {
  check_random_models<Policy<F64, Cp<2>, Tp<2>, SequenceParallel>>(80);
}

TEST_CASE(
    "random models with a batch of their own under Policy<F64, Cp<2>, Tp<2>, SequenceParallel> and a stage equal one "
    "dense rank") {
  check_random_own_models<Policy<F64, Cp<2>, Tp<2>, SequenceParallel>>(30);
}

TEST_CASE("random sources under Policy<F64, Cp<2>> on one to four data ranks come in one order, also resumed") {
  check_random_sources<Policy<F64, Cp<2>>>(120);
}
