// SPDX-License-Identifier: Apache-2.0
/// bfloat16: the upper half of a float. Stored in 16 bits, computed in f32.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include <dspp/base/config.hpp>

namespace dspp {

/// Converts from f32 to the nearest value, ties to even; NaN stays NaN (quiet, sign kept), overflow becomes infinity.
struct bf16 {
  std::uint16_t bits = 0;

  constexpr bf16() = default;
  constexpr explicit bf16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  constexpr explicit bf16(double value) : bf16(static_cast<float>(value)) {}
  constexpr explicit bf16(int value) : bf16(static_cast<float>(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  static constexpr bf16 from_bits(std::uint16_t bits) {
    bf16 x;
    x.bits = bits;
    return x;
  }

  /// The rounding itself, branch-free apart from NaN so that loops over it vectorise.
  static constexpr std::uint16_t round(std::uint32_t f) {
    const std::uint32_t nearest = (f + 0x7fffu + ((f >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (f >> 16) | 0x40u;
    return static_cast<std::uint16_t>((f & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
  }
};

static_assert(sizeof(bf16) == 2);
static_assert(bf16(1.0f).bits == 0x3f80);
static_assert(bf16(std::bit_cast<float>(0x3f808000u)).bits == 0x3f80);  // tie: to even, down
static_assert(bf16(std::bit_cast<float>(0x3f818000u)).bits == 0x3f82);  // tie: to even, up

}  // namespace dspp
