// SPDX-License-Identifier: Apache-2.0
// Random blends and buckets, prefetched or not, on worlds of one to four ranks: one order of samples, also resumed.
// labels: random
#include <laws/random_sources.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random sources under Policy<F64> have the order of one rank, and are resumed in it") {
  check_random_sources<Policy<F64>>(150);
}

TEST_CASE("random sources under Policy<F64, Cp<2>, Tp<2>> have the order of one rank, and are resumed in it") {
  check_random_sources<Policy<F64, Cp<2>, Tp<2>>>(60);
}
