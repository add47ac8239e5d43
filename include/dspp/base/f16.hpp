// SPDX-License-Identifier: Apache-2.0
/// IEEE binary16: 11 bits of precision, 6e-8 to 65504. Stored in 16 bits, computed in f32.
#pragma once

#include <cstdint>
#include <type_traits>

#include <dspp/base/bits.hpp>
#include <dspp/base/config.hpp>
#include <dspp/base/intrinsics.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// Converts from f32 to the nearest value, ties to even, subnormals included; NaN stays NaN (quiet, sign and upper
/// payload kept), values that round beyond 65504 become infinity. To f32 it is exact. From f64 it rounds through f32.
///
/// The processor converts if compiled for F16C: the same bits (tests/base/f16_test.cpp).
struct f16 {
  std::uint16_t bits = 0;

  constexpr f16() = default;
  constexpr explicit f16(float value) : bits(nearest(value)) {}
  constexpr explicit f16(double value) : f16(static_cast<float>(value)) {}
  constexpr explicit f16(int value) : f16(static_cast<float>(value)) {}
  constexpr operator float() const {
#if DSPP_HAS_F16C()
    if (!std::is_constant_evaluated()) return _cvtsh_ss(bits);
#endif
    return widen(bits);
  }

  static constexpr f16 from_bits(std::uint16_t bits) {
    f16 x;
    x.bits = bits;
    return x;
  }

  /// The rounding itself, in integers except for subnormals: adding 1/2 in f32 rounds those to their unit, 2^-24.
  static constexpr std::uint16_t round(float value);
  /// The value of those bits; a signalling NaN becomes quiet, as in the processor.
  static constexpr float widen(std::uint16_t bits);

 private:
  static constexpr std::uint16_t nearest(float value) {
#if DSPP_HAS_F16C()
    if (!std::is_constant_evaluated()) return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#endif
    return round(value);
  }
};

/// to[i] = from[i], eight at a time with F16C: compilers vectorise no loop over single conversions.
inline void convert_elements(const f16* from, Size count, float* to);
inline void convert_elements(const float* from, Size count, f16* to);

// ---------------------------------------------------------------------------------------------------------------------

constexpr std::uint16_t f16::round(float value) {
  const std::uint32_t f = bits_as<std::uint32_t>(value), sign = (f >> 16) & 0x8000u, magnitude = f & 0x7fffffffu;
  std::uint32_t rounded = 0;
  if (magnitude < 0x38800000u)  // below 2^-14
    rounded = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5f) - bits_as<std::uint32_t>(0.5f);
  else if (magnitude < 0x47800000u)  // below 2^16; from 65520 on the carry makes infinity
    rounded = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  else
    rounded = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
  return static_cast<std::uint16_t>(sign | rounded);
}

constexpr float f16::widen(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  std::uint32_t wide = (magnitude << 13) + (112u << 23);
  if (magnitude < 0x400u)
    wide = bits_as<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  else if (magnitude >= 0x7c00u)
    wide = 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? 0x400000u : 0u);
  return bits_as<float>(sign | wide);
}

inline void convert_elements(const f16* from, Size count, float* to) {
#if DSPP_HAS_F16C()
  for (; count >= 8; count -= 8, from += 8, to += 8)
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#endif
  for (Size i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

inline void convert_elements(const float* from, Size count, f16* to) {
#if DSPP_HAS_F16C()
  for (; count >= 8; count -= 8, from += 8, to += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (Size i = 0; i < count; ++i) to[i] = static_cast<f16>(from[i]);
}

static_assert(sizeof(f16) == 2);
static_assert(f16(1.0f).bits == 0x3c00 && f16(-65504.0f).bits == 0xfbff);
static_assert(f16(65519.0f).bits == 0x7bff && f16(65520.0f).bits == 0x7c00);                   // tie: to infinity
static_assert(f16(1 + 0x1p-11f).bits == 0x3c00 && f16(1 + 0x3p-11f).bits == 0x3c02);           // ties: to even
static_assert(f16(0x1p-24f).bits == 1 && f16(0x1p-25f).bits == 0 && f16(0x3p-25f).bits == 2);  // the same, subnormal

}  // namespace dspp
