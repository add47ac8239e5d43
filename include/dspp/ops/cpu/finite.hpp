// SPDX-License-Identifier: Apache-2.0
/// Whether a range holds NaN or infinity, read from the bits.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// Reads x once.
template <class T>
struct Kernel<kernels::AllFinite<T>, Cpu> {
  static bool run(Size count, const T* x);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include <dspp/base/bits.hpp>
#include <dspp/base/element.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

namespace detail {
/// The exponent of NaN and infinity, as an integer of T's width; 0 for integers, which are always finite.
template <class T>
inline constexpr int exponent_of_infinity = 0;
template <>
inline constexpr std::uint64_t exponent_of_infinity<double> = 0x7ff0000000000000;
template <>
inline constexpr std::uint32_t exponent_of_infinity<float> = 0x7f800000;
template <>
inline constexpr std::uint16_t exponent_of_infinity<bf16> = 0x7f80;
template <>
inline constexpr std::uint16_t exponent_of_infinity<f16> = 0x7c00;
}  // namespace detail

}  // namespace dspp::cpu

namespace dspp {

template <class T>
bool Kernel<kernels::AllFinite<T>, Cpu>::run(Size count, const T* x) {
  using namespace cpu;
  constexpr auto exponent = cpu::detail::exponent_of_infinity<T>;
  if constexpr (exponent == 0) {
    return true;
  } else {
    using Bits = std::remove_const_t<decltype(exponent)>;
    constexpr Size run = 256;  // a constant number of elements, whose maximum compilers vectorise
    const auto exponent_of = [](T value) { return static_cast<Bits>(bits_as<Bits>(value) & exponent); };
    std::atomic<bool> all = true;
    parallel_for(count, 256 * run, [&](Size begin, Size end) {
      for (Size first = begin; first < end; first += run) {
        const T* const a = x + first;
        Bits worst = 0;
        if (end - first >= run)
          for (Size i = 0; i < run; ++i) worst = std::max(worst, exponent_of(a[i]));
        else
          for (Size i = 0; i < end - first; ++i) worst = std::max(worst, exponent_of(a[i]));
        if (worst == exponent) all.store(false, std::memory_order_relaxed);
      }
    });
    return all;
  }
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
