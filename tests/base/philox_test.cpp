// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/base/philox.hpp>
#include <laws/difference.hpp>

using namespace dspp;

namespace {

constexpr PhiloxStream stream{.key = {42}, .step = 1, .sample = 2, .site = 3};

// Known answers of the Random123 library (kat_vectors, philox4x32 10).
static_assert(philox4x32_10({}, 0, 0) == PhiloxBlock{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
static_assert(philox4x32_10({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u) ==
              PhiloxBlock{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
static_assert(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0) ==
              PhiloxBlock{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});

// Normals are the same at compile time and at run time.
constexpr float in_the_compiler[4] = {normal_from_bits(0), normal_from_bits(0x7fffffff), normal_from_bits(0x80000000),
                                      normal_from_bits(0x12345678)};

/// The largest distance between the empirical distribution of `values` and `cdf`.
template <class F>
double kolmogorov_smirnov(std::vector<float> values, F cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  laws::Worst distance;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(static_cast<double>(values[i]));
    distance.add(laws::difference(p, static_cast<double>(i) / n));
    distance.add(laws::difference(p, static_cast<double>(i + 1) / n));
  }
  return distance.value();
}

}  // namespace

TEST_CASE("an element is the same alone, in any range, and in a constant expression") {
  constexpr std::uint32_t tenth = philox_bits(stream, 10);
  CHECK(philox_bits(stream, 10) == tenth);
  std::vector<std::uint32_t> bits(300);
  std::vector<float> normal(300);
  for (const Size begin : {0, 1, 3, 4, 63, 64, 65, 130})
    for (const Size end : {130, 131, 200, 299}) {
      philox_fill_bits(stream, begin, end, bits.data());
      philox_fill_normal(stream, begin, end, normal.data());
      bool same = true;
      for (Size i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i - begin);
        same = same && bits[at] == philox_bits(stream, i) && normal[at] == philox_normal(stream, i);
      }
      CHECK(same);
    }
}

TEST_CASE("a range writes nothing outside itself") {
  std::vector<std::uint32_t> bits(12, 7);
  philox_fill_bits(stream, 61, 69, bits.data() + 2);
  CHECK(bits[0] == 7);
  CHECK(bits[1] == 7);
  CHECK(bits[10] == 7);
  philox_fill_bits(stream, 5, 5, bits.data());
  CHECK(bits[0] == 7);
}

TEST_CASE("seed, step, sample, site and elements beyond 2^34 give different numbers") {
  std::vector<std::uint32_t> firsts;
  for (const PhiloxStream& other :
       {stream, PhiloxStream{{43}, 1, 2, 3}, PhiloxStream{{42 + (1ull << 32)}, 1, 2, 3}, PhiloxStream{{42}, 2, 2, 3},
        PhiloxStream{{42}, 1, 3, 3}, PhiloxStream{{42}, 1, 2, 4}})
    for (const Size element : {Size{0}, Size{1}, Size{4}, Size{1} << 34, Size{1} << 41})
      firsts.push_back(philox_bits(other, element));
  std::sort(firsts.begin(), firsts.end());
  CHECK(std::adjacent_find(firsts.begin(), firsts.end()) == firsts.end());
}

TEST_CASE("uniforms lie inside (0, 1), symmetrically, and follow the uniform distribution") {
  CHECK(uniform_from_bits(0) == 0x1p-24f);
  CHECK(uniform_from_bits(~0u) == 1 - 0x1p-24f);
  std::vector<float> values;
  for (Size i = 0; i < 100000; ++i) values.push_back(philox_uniform(stream, i));
  CHECK(kolmogorov_smirnov(values, [](double x) { return x; }) < 1.95 / std::sqrt(1e5));  // p = 0.001
}

TEST_CASE("normals are symmetric, bounded by 6.34, monotonic, and within 4e-7 of the inverse distribution") {
  CHECK(normal_from_bits(0) == doctest::Approx(-6.337957f));
  laws::Worst worst;
  double before = -7;
  for (std::uint64_t i = 0; i < (1ull << 31); i += i < 65536 ? 1 : 65521) {
    const auto bits = static_cast<std::uint32_t>(i);
    const double z = -static_cast<double>(normal_from_bits(bits));
    CHECK_MESSAGE(normal_from_bits(~bits) == static_cast<float>(z), bits);
    // One Newton step from z towards Phi(-z) = p measures the error of z.
    const double p = (static_cast<double>(i) + 0.5) * 0x1p-32, tail = 0.5 * std::erfc(z / std::sqrt(2.0));
    const double step = (tail - p) * std::sqrt(2 * std::acos(-1.0)) * std::exp(z * z / 2);
    worst.add(laws::difference(step, 0, std::abs(z)));
    CHECK_MESSAGE(-z >= before - 4e-7 * z, bits);
    before = -z;
  }
  CHECK(worst.value() < 4e-7);
}

TEST_CASE("normals have the moments and the distribution of the normal one") {
  const std::size_t n = 1000000;
  std::vector<float> values(n);
  philox_fill_normal(stream, 0, static_cast<Size>(n), values.data());
  double moments[5] = {};
  for (const float z : values)
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(static_cast<double>(z), k) / static_cast<double>(n);
  CHECK(std::abs(moments[1]) < 5 / std::sqrt(1e6));  // five standard errors: sqrt(1, 2, 15, 96 / n)
  CHECK(std::abs(moments[2] - 1) < 5 * std::sqrt(2.0) / 1e3);
  CHECK(std::abs(moments[3]) < 5 * std::sqrt(15.0) / 1e3);
  CHECK(std::abs(moments[4] - 3) < 5 * std::sqrt(96.0) / 1e3);
  values.resize(100000);
  CHECK(kolmogorov_smirnov(values, [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }) <
        1.95 / std::sqrt(1e5));
}

TEST_CASE("neighbouring elements, samples and steps are not correlated") {
  const Size n = 100000;
  std::vector<float> here(n), there(n);
  philox_fill_normal(stream, 0, n, here.data());
  const auto correlation = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < here.size(); ++i) sum += static_cast<double>(here[i]) * static_cast<double>(there[i]);
    return std::abs(sum / static_cast<double>(n));
  };
  philox_fill_normal(stream, 1, n + 1, there.data());
  CHECK(correlation() < 5 / std::sqrt(1e5));
  philox_fill_normal({stream.key, stream.step, stream.sample + 1, stream.site}, 0, n, there.data());
  CHECK(correlation() < 5 / std::sqrt(1e5));
  philox_fill_normal({stream.key, stream.step + 1, stream.sample, stream.site}, 0, n, there.data());
  CHECK(correlation() < 5 / std::sqrt(1e5));
}

TEST_CASE("normals have the same bits at compile time and at run time") {
  const volatile std::uint32_t bits[4] = {0, 0x7fffffff, 0x80000000, 0x12345678};
  for (int i = 0; i < 4; ++i) CHECK(normal_from_bits(bits[i]) == in_the_compiler[i]);
}
