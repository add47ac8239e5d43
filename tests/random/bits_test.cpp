// SPDX-License-Identifier: Apache-2.0
// Random models in narrow precisions: ZeRO stages share their bits, as docs/decisions/0003 says.
// labels: random
#include <laws/random_laws.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random models under Policy<Bf16> end with the bits of other stages") {
  check_random_bits<Policy<Bf16>>(60);
}

TEST_CASE("random models under Policy<F16> end with the bits of other stages") {
  check_random_bits<Policy<F16>>(60);
}

TEST_CASE("random models under Policy<F32, Tp<2>> end with the bits of other stages") {
  check_random_bits<Policy<F32, Tp<2>>>(60);
}
