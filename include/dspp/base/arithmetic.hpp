// SPDX-License-Identifier: Apache-2.0
/// Checks that this program computes as IEEE 754 requires; exp, tanh, the overflow check and equal bits rely on it.
///
/// base/config.hpp rejects flags that compilers have a macro for. clang has none for parts of -ffast-math, and a linker
/// may add start code (crtfastmath.o) that makes the processor flush subnormal numbers: these are detected by
/// computing.
#pragma once

#include <cstdint>

#include <dspp/base/bits.hpp>
#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <string>
#endif

namespace dspp {

/// Checks the arithmetic of the calling unit and of the calling thread; threads that it starts inherit theirs.
///
/// Cost     some 50 operations on floats
/// Throws   Error(usage) that names the flag
[[gnu::always_inline]] inline void check_arithmetic();

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The fault of the unit's flags, or nullptr. Operands are volatile, so that the compiler does not fold them; inlined,
/// since a function that units share is compiled with the flags of one.
[[gnu::always_inline]] inline const char* fault_of_flags() {
  volatile float number = 1.3f, minus_zero = -0.0f, five = 5.0f, nan = bits_as<float>(0x7fc00000u);
  constexpr float infinity = bits_as<float>(0x7f800000u);
  const float copy = number;
  volatile float rounded = (copy + 12582912.0f) - 12582912.0f;  // 1.5 * 2^23: to an integer, as in math::exp
  if (rounded != 1.0f) return "this program was compiled with -fassociative-math (part of -funsafe-math-optimizations)";
  volatile float zero = minus_zero + 0.0f;
  if (bits_as<std::uint32_t>(static_cast<float>(zero)) != 0) return "this program was compiled with -fno-signed-zeros";
  volatile float quotient = five / 3.0f;  // 5 * (1 / 3) is another float
  if (quotient != 0x1.aaaaaap+0f) return "this program was compiled with -freciprocal-math";
  const float unknown = nan;
  volatile bool seen = unknown != unknown;
  if (!seen) return "this program was compiled with -fno-honor-nans (part of -ffinite-math-only)";
  volatile float above = copy + infinity, below = copy - infinity;
  if (bits_as<std::uint32_t>(static_cast<float>(above)) != 0x7f800000u ||
      bits_as<std::uint32_t>(static_cast<float>(below)) != 0xff800000u)
    return "this program was compiled with -fno-honor-infinities (part of -ffinite-math-only)";
  return nullptr;
}

/// The fault of the calling thread's rounding mode, or nullptr.
const char* fault_of_rounding();

/// The fault of the calling thread's treatment of subnormal numbers, or nullptr.
const char* fault_of_subnormals();

[[noreturn]] void fail_of_arithmetic(const char* fault);

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE const char* fault_of_rounding() {
  volatile float one = 1.0f, tiny = 0x1p-30f, more = 0x1.8p-24f;
  if (one + tiny != 1.0f || -one - tiny != -1.0f || one + more == 1.0f)
    return "the processor does not round to nearest; fesetround(FE_TONEAREST) at the start of main ends it, too";
  return nullptr;
}

DSPP_INLINE const char* fault_of_subnormals() {
  volatile float normal = 0x1p-126f, half = 0.5f, subnormal = 0x1p-140f, large = 0x1p100f;
  if (normal * half == 0.0f || subnormal * large == 0.0f)
    return "the processor takes subnormal numbers for zero, as in programs that were linked with -ffast-math or "
           "-Ofast, or that load such a library; fesetenv(FE_DFL_ENV) at the start of main ends it, too";
  return nullptr;
}

DSPP_INLINE void fail_of_arithmetic(const char* fault) {
  fail(ErrorCode::usage, std::string("dspp: training needs the arithmetic of IEEE 754, but ") + fault +
                             ". Compile and link without such flags.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

inline void check_arithmetic() {
  const char* fault = detail::fault_of_rounding();  // first: flags change rounded numbers
  if (!fault) fault = detail::fault_of_flags();     // before the effects of their start code
  if (!fault) fault = detail::fault_of_subnormals();
  if (fault) detail::fail_of_arithmetic(fault);
}

}  // namespace dspp
