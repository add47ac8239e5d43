// SPDX-License-Identifier: Apache-2.0
/// exp, log, tanh and erf of f32 without calls or branches, so that loops over them vectorise; those of f64 are libm's.
///
/// The polynomials are our own minimax fits. Largest errors, in units in the last place of the result, over every 17th
/// float of the stated range, with and without fused operations (tests/base/math_test.cpp repeats a coarser sweep):
///   exp  1.1 ulp, x in [-87.3, 88.7]; below, where the result would be subnormal, 0
///   log  1.0 ulp, x in [2^-126, infinity); subnormal x are taken for 0
///   tanh 1.4 ulp, all x
///   erf  1.3 ulp, all x
/// NaN stays NaN; infinities give the limits. On a GPU they are CUDA's own, at most 2 ulp: its exp has an instruction.
#pragma once

#include <cmath>
#include <cstdint>

#include <dspp/base/bits.hpp>
#include <dspp/base/config.hpp>

namespace dspp::math {

DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float exp(float x);
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float log(float x);
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float tanh(float x);
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float erf(float x);

DSPP_HOST_DEVICE inline double exp(double x) {
  return std::exp(x);
}
DSPP_HOST_DEVICE inline double log(double x) {
  return std::log(x);
}
DSPP_HOST_DEVICE inline double tanh(double x) {
  return std::tanh(x);
}
DSPP_HOST_DEVICE inline double erf(double x) {
  return std::erf(x);
}

namespace detail {

inline constexpr float infinity = bits_as<float>(0x7f800000u);
inline constexpr float not_a_number = bits_as<float>(0x7fc00000u);
inline constexpr float log2_upper = 0.693359375f;  // 10 bits: its product with an exponent is exact
inline constexpr float log2_lower = -2.12194440e-4f;
inline constexpr float inverse_log2 = 1.44269504f, half_mantissa = 12582912.0f;  // 1.5 * 2^23
/// exp(r) = 1 + r + r^2 (exp_2 + r (exp_3 + ...)).
inline constexpr float exp_2 = 0.4999999341248513f, exp_3 = 0.16666520107783095f, exp_4 = 0.04166839421431909f,
                       exp_5 = 0.008368780414537856f, exp_6 = 0.0013814466887081007f;
/// Below the first exp is 0 (it would be subnormal), above the second infinity.
inline constexpr float exp_least = -87.33654f, exp_most = 88.72283f;

/// first + x (second + x (third + ...)).
template <class... Rest>
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float polynomial(float x, float first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0)
    return first;
  else
    return first + x * polynomial(x, rest...);
}

DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float magnitude(float x) {
  return bits_as<float>(bits_as<std::uint32_t>(x) & 0x7fffffffu);
}

/// |value| with the sign of x.
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float with_sign_of(float value, float x) {
  return bits_as<float>(bits_as<std::uint32_t>(value) | (bits_as<std::uint32_t>(x) & 0x80000000u));
}

/// condition ? yes : no, by masks: g++ turns a conditional expression over floats into branches and does not vectorise
/// the loop.
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float select(bool condition, float yes, float no) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return bits_as<float>((bits_as<std::uint32_t>(yes) & mask) | (bits_as<std::uint32_t>(no) & ~mask));
}

}  // namespace detail

/// exp(x) = 2^n exp(r), n the integer nearest to x / log 2: adding 1.5 * 2^23 leaves n in the lowest bits.
/// (ops/cpu/vectors.hpp has the same steps for vectors, which nvcc takes in no function of the device.)
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float exp(float x) {
#if DSPP_ON_GPU()
  if (!__builtin_is_constant_evaluated()) return ::expf(x);
#endif
  const float shifted = x * detail::inverse_log2 + detail::half_mantissa;
  const float n = shifted - detail::half_mantissa;
  const float r = (x - n * detail::log2_upper) - n * detail::log2_lower;
  const float q = detail::polynomial(r, detail::exp_2, detail::exp_3, detail::exp_4, detail::exp_5, detail::exp_6);
  const float mantissa = 1.0f + (r + r * r * q);
  const float value = bits_as<float>(bits_as<std::uint32_t>(mantissa) + (bits_as<std::uint32_t>(shifted) << 23));
  const float beyond = x + detail::infinity;  // NaN for NaN
  return detail::select(x <= detail::exp_most, detail::select(x >= detail::exp_least, value, 0.0f), beyond);
}

/// log(x) = e log 2 + log(1 + f), x = 2^e (1 + f), 1 + f in [0.7, 1.41).
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float log(float x) {
#if DSPP_ON_GPU()
  if (!__builtin_is_constant_evaluated()) return ::logf(x);
#endif
  const auto shifted = static_cast<std::int32_t>(bits_as<std::uint32_t>(x) - 0x3f3504f3u);
  const auto e = static_cast<float>(shifted >> 23);
  const float f = bits_as<float>((static_cast<std::uint32_t>(shifted) & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float r =
      detail::polynomial(f, 0.333333317076635f, -0.2500082103393996f, 0.20001226880214634f, -0.16623357359721336f,
                         0.14201757917010793f, -0.13160182161913897f, 0.12761577535410443f, -0.07634497756422422f);
  const float small = f * f * (f * r - 0.5f) + e * detail::log2_lower;
  const float value = e * detail::log2_upper + (f + small);
  const float of_positive = detail::select(x < detail::infinity, value, x);  // infinity and NaN are kept
  const float of_zero = detail::select(x < 0.0f, detail::not_a_number, -detail::infinity);
  return detail::select(x < 0x1p-126f, of_zero, of_positive);
}

/// x + x^3 T(x^2) near 0, else 1 - 2 / (exp(2x) + 1).
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float tanh(float x) {
#if DSPP_ON_GPU()
  if (!__builtin_is_constant_evaluated()) return ::tanhf(x);
#endif
  const float a = detail::magnitude(x), t = x * x;
  const float p = detail::polynomial(t, -0.3333328194197953f, 0.13331442197548588f, -0.053739715048049405f,
                                     0.020639087156764692f, -0.005704986925492254f);
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return detail::with_sign_of(detail::select(a < 0.625f, a + a * t * p, large), x);
}

/// x + x P(x^2) up to 1, else 1 - exp(-Q(x)); 1 from 4 on.
DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr float erf(float x) {
#if DSPP_ON_GPU()
  if (!__builtin_is_constant_evaluated()) return ::erff(x);
#endif
  const float a = detail::magnitude(x), t = x * x;
  const float p =
      detail::polynomial(t, 0.128379165726711f, -0.37612625824225887f, 0.11283585148544881f, -0.02685381193260583f,
                         0.005188327680828983f, -0.0008010193583263825f, 7.853861217313463e-05f);
  const float b = detail::select(a > 4.0f, 4.0f, a);
  const float q =
      detail::polynomial(b, 0.00019567558995689434f, 1.1276756264597294f, 0.6371822471263343f, 0.1039315970277992f,
                         -0.022226920399293526f, 0.003043217405441445f, -0.00019593723841304644f);
  return detail::with_sign_of(detail::select(a < 1.0f, a + a * p, 1.0f - exp(-q)), x);
}

}  // namespace dspp::math
