// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>

#include <dspp/base/math.hpp>
#include <laws/difference.hpp>

using namespace dspp;

namespace {

static_assert(math::exp(0.0f) == 1.0f && math::log(1.0f) == 0.0f && math::tanh(0.0f) == 0.0f &&
              math::erf(0.0f) == 0.0f);

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// The largest error over every 211th float of [low, high], in units in the last place of the exact result.
template <class F, class G>
double worst_error(F f, G exact, float low, float high) {
  laws::Worst worst;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 211) {
    const float x = bits_as<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double expected = exact(static_cast<double>(x));
    if (std::abs(expected) < 0x1p-126) continue;
    const double unit = std::ldexp(1.0, std::ilogb(static_cast<float>(expected)) - 23);
    worst.add(laws::difference(static_cast<double>(f(x)), expected, unit));
  }
  return worst.value();
}

}  // namespace

TEST_CASE("exp, log, tanh and erf of f32 are as accurate as their header states") {
  CHECK(worst_error([](float x) { return math::exp(x); }, [](double x) { return std::exp(x); }, -87.33654f, 88.72283f) <
        1.1);
  CHECK(worst_error([](float x) { return math::log(x); }, [](double x) { return std::log(x); }, 0x1p-126f, 3.4e38f) <
        1.1);
  CHECK(worst_error([](float x) { return math::tanh(x); }, [](double x) { return std::tanh(x); }, -3.4e38f, 3.4e38f) <
        1.7);
  CHECK(worst_error([](float x) { return math::erf(x); }, [](double x) { return std::erf(x); }, -3.4e38f, 3.4e38f) <
        1.5);
}

TEST_CASE("infinities give the limits") {
  CHECK(math::exp(infinity) == infinity);
  CHECK(math::exp(-infinity) == 0.0f);
  CHECK(math::exp(89.0f) == infinity);
  CHECK(math::exp(-88.0f) == 0.0f);
  CHECK(math::log(infinity) == infinity);
  CHECK(math::log(0.0f) == -infinity);
  CHECK(math::tanh(infinity) == 1.0f);
  CHECK(math::tanh(-infinity) == -1.0f);
  CHECK(math::erf(infinity) == 1.0f);
  CHECK(math::erf(-infinity) == -1.0f);
}

TEST_CASE("NaN stays NaN, and the log of a negative number is NaN") {
  CHECK(std::isnan(math::exp(not_a_number)));
  CHECK(std::isnan(math::log(not_a_number)));
  CHECK(std::isnan(math::tanh(not_a_number)));
  CHECK(std::isnan(math::erf(not_a_number)));
  CHECK(std::isnan(math::log(-1.0f)));
}

TEST_CASE("odd functions are odd, with the sign of zero") {
  for (const float x : {1e-30f, 0.1f, 0.624f, 0.626f, 0.999f, 1.001f, 3.0f, 20.0f}) {
    CHECK(math::tanh(-x) == -math::tanh(x));
    CHECK(math::erf(-x) == -math::erf(x));
  }
  CHECK(std::signbit(math::tanh(-0.0f)));
  CHECK(std::signbit(math::erf(-0.0f)));
}

TEST_CASE("the functions of f64 are libm's") {
  CHECK(math::exp(1.5) == std::exp(1.5));
  CHECK(math::log(1.5) == std::log(1.5));
  CHECK(math::tanh(1.5) == std::tanh(1.5));
  CHECK(math::erf(1.5) == std::erf(1.5));
}
