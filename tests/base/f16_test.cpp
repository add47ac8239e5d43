// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/base/config.hpp>
#include <dspp/base/f16.hpp>

using namespace dspp;

namespace {

constexpr std::uint32_t half_count = 1u << 16;

f16 half(std::uint32_t bits) {
  return f16::from_bits(static_cast<std::uint16_t>(bits));
}

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// The value by the definition of binary16: sign, 5 bits of exponent, 10 of fraction.
double defined_value(std::uint32_t bits) {
  const double sign = bits >> 15 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

/// The result of every way to convert x, which must agree: the operator, the portable code, and whole rows.
std::uint16_t rounded(float x) {
  const std::uint16_t bits = f16(x).bits;
  if (f16::round(x) != bits) FAIL_CHECK("two roundings");
  return bits;
}

// the portable code, at compile time
static_assert(f16::widen(0x0001) == 0x1p-24f && f16::widen(0x03ff) == 0x1p-14f - 0x1p-24f);
static_assert(f16::widen(0x7bff) == 65504 && f16::widen(0xfc00) == -std::numeric_limits<float>::infinity());
static_assert(f16(-0.0f).bits == 0x8000 && f16(1e9).bits == 0x7c00 && f16(-3).bits == 0xc200);
static_assert(f16(2.0f) + f16(0.5f) == 2.5f);

}  // namespace

TEST_CASE("each of the 2^16 f16 converts to the f32 of its definition, and back") {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < half_count; ++bits) {
    const float wide = half(bits);
    const double value = defined_value(bits);
    const bool nan = std::isnan(value);
    wrong += nan ? !std::isnan(wide) : static_cast<double>(wide) != value;
    wrong += std::signbit(wide) != (bits >> 15 == 1);
    wrong += bits_of(f16::widen(static_cast<std::uint16_t>(bits))) != bits_of(wide);
    wrong += f16(wide).bits != (nan ? bits | 0x200u : bits);  // quiet, payload kept
    wrong += f16::round(wide) != f16(wide).bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("values round to the nearest neighbour, ties to even, subnormals and the largest included") {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float below = half(bits), above = bits == 0x7bff ? 65536.0f : static_cast<float>(half(bits + 1));
    const float middle = below + (above - below) / 2;  // exact: f32 has 13 bits more
    const std::uint32_t even = bits + (bits & 1u);
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint32_t s = sign < 0 ? 0x8000u : 0u;
      wrong += rounded(sign * middle) != (even | s);
      wrong += rounded(sign * std::nextafter(middle, 0.0f)) != (bits | s);
      wrong += rounded(sign * std::nextafter(middle, INFINITY)) != ((bits + 1) | s);
      wrong += rounded(sign * std::nextafter(above, 0.0f)) != ((bits + 1) | s);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("overflow becomes infinity, underflow zero, and NaN keeps its sign and the upper bits of its payload") {
  CHECK(rounded(65519.996f) == 0x7bff);
  CHECK(rounded(65520.0f) == 0x7c00);
  CHECK(rounded(-std::numeric_limits<float>::max()) == 0xfc00);
  CHECK(rounded(INFINITY) == 0x7c00);
  CHECK(rounded(0x1p-25f) == 0);
  CHECK(rounded(std::nextafter(0x1p-25f, 1.0f)) == 1);
  CHECK(rounded(-std::numeric_limits<float>::denorm_min()) == 0x8000);
  for (const std::uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffabcdefu, 0x7fffffffu}) {
    CAPTURE(nan);
    CHECK(rounded(std::bit_cast<float>(nan)) == ((nan >> 16 & 0x8000u) | 0x7e00u | (nan >> 13 & 0x3ffu)));
  }
}

TEST_CASE("the processor and the portable code round every 101st f32 to the same bits, one by one and in rows") {
  constexpr std::uint32_t row = 4099;
  std::vector<float> wide(row), back(row);
  std::vector<f16> narrow(row);
  std::uint32_t wrong = 0;
  for (std::uint64_t first = 0; first < 1ull << 32; first += 101ull * row) {
    for (std::uint32_t i = 0; i < row; ++i)
      wide[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + 101ull * i));
    convert_elements(wide.data(), row, narrow.data());
    convert_elements(narrow.data(), row, back.data());
    for (std::uint32_t i = 0; i < row; ++i) {
      wrong += f16::round(wide[i]) != narrow[i].bits;
      wrong += bits_of(f16::widen(narrow[i].bits)) != bits_of(back[i]);
    }
  }
  CHECK(wrong == 0);
#if !DSPP_HAS_F16C()
  MESSAGE("not compiled for F16C: the portable code was compared with itself");
#endif
}
