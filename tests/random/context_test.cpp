// SPDX-License-Identifier: Apache-2.0
// Random models on context ranks against one dense rank. What docs/placement.md calls open is not drawn: own layers
// that read along the sequence in their tensors without whole_sequences, and what follows X(tensor, x.tape()).
// labels: random
#include <laws/random_run.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<F64, Cp<2>> equal one dense rank") {
  check_random_models<Policy<F64, Cp<2>>>(150);
}

TEST_CASE("random models under Policy<F64, Cp<3>, Zero<3>> equal one dense rank") {
  check_random_models<Policy<F64, Cp<3>, Zero<3>>>(150);
}

TEST_CASE("random models under Policy<F64, Cp<2>, Tp<2>, Zero<1>> equal one dense rank") {
  check_random_models<Policy<F64, Cp<2>, Tp<2>, Zero<1>>>(150);
}

TEST_CASE("random models under Policy<F64, Cp<2>, Tp<2>, SequenceParallel, Zero<2>> equal one dense rank") {
  check_random_models<Policy<F64, Cp<2>, Tp<2>, SequenceParallel, Zero<2>>>(150);
}
