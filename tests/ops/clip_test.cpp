// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <doctest/doctest.h>

#include <dspp/ops/clip.hpp>

using namespace dspp;

static_assert(clip_coefficient(4, 1) == 1 / 4.000001);
static_assert(clip_coefficient(0.5, 1) == 1);
static_assert(clip_coefficient(100, 0) == 1);

TEST_CASE("clipping shortens gradients to the largest norm, with DeepSpeed's 1e-6, and never lengthens them") {
  CHECK(clip_coefficient(10, 2.5) == doctest::Approx(2.5 / 10.000001).epsilon(1e-15));
  CHECK(clip_coefficient(1, 1) == 1 / 1.000001);  // at the limit the 1e-6 counts
  CHECK(clip_coefficient(0.999998, 1) == 1.0);
  CHECK(clip_coefficient(0, 1) == 1.0);
}

TEST_CASE("a norm that is not finite is not clipped") {
  CHECK(clip_coefficient(std::numeric_limits<double>::infinity(), 1) == 1.0);
  CHECK(clip_coefficient(std::numeric_limits<double>::quiet_NaN(), 1) == 1.0);
}
