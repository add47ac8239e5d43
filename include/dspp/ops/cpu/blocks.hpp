// SPDX-License-Identifier: Apache-2.0
/// Loops of constant length over short local arrays: the form that every compiler vectorises at -O2.
#pragma once

#include <cstdint>
#include <type_traits>

#include <dspp/base/bits.hpp>
#include <dspp/base/element.hpp>

namespace dspp::cpu {

/// Elements that a kernel handles at once. A shorter rest is padded and uses the same instructions, so that an
/// element's bits do not depend on its position in a range.
inline constexpr int block_length = 32;

/// One block in the computing type.
template <class C>
using Lanes = C[block_length];

/// The first `count` elements of `from`, up to a block, then `padding`: in place if they need neither conversion nor
/// padding, else in `buffer`. (A copy in narrower pieces than the loop's vectors would stall store forwarding.)
template <class T>
[[gnu::always_inline]] inline const Compute<T>* read_block(Lanes<Compute<T>>& buffer, const T* from, Size count,
                                                           Compute<T> padding = Compute<T>(0)) {
  using C = Compute<T>;
  if (count >= block_length) {
    if constexpr (std::is_same_v<T, C>)
      return from;
    else if constexpr (std::is_same_v<T, f16>)
      convert_elements(from, block_length, buffer);
    else
      for (int j = 0; j < block_length; ++j) buffer[j] = static_cast<C>(from[j]);
  } else {
    for (int j = 0; j < block_length; ++j) buffer[j] = padding;
    for (int j = 0; j < static_cast<int>(count); ++j) buffer[j] = static_cast<C>(from[j]);
  }
  return buffer;
}

/// bf16's rounding of a float, the result in the upper half: the same bits as bf16::round, with fewer instructions in a
/// vectorised loop.
[[gnu::always_inline]] inline std::uint32_t round_upper(float x) {
  const std::uint32_t f = bits_as<std::uint32_t>(x);
  const auto magnitude = static_cast<std::int32_t>(f & 0x7fffffffu);
  const std::uint32_t is_nan = 0u - static_cast<std::uint32_t>(magnitude > 0x7f800000);
  return ((f + 0x7fffu + ((f >> 16) & 1u)) & ~is_nan) | ((f | 0x400000u) & is_nan);
}

/// The first `count` elements of a block, rounded to T.
template <class T>
[[gnu::always_inline]] inline void store_block(T* to, const Lanes<Compute<T>>& from, Size count) {
  if (count < block_length) {
    for (int j = 0; j < static_cast<int>(count); ++j) to[j] = static_cast<T>(from[j]);
  } else if constexpr (std::is_same_v<T, bf16>) {
    for (int j = 0; j < block_length; ++j) to[j].bits = static_cast<std::uint16_t>(round_upper(from[j]) >> 16);
  } else if constexpr (std::is_same_v<T, f16>) {
    convert_elements(from, block_length, to);
  } else {
    for (int j = 0; j < block_length; ++j) to[j] = static_cast<T>(from[j]);
  }
}

/// Adds the first `count` elements of `from`, up to a block.
template <class T>
[[gnu::always_inline]] inline void add_block(Lanes<Compute<T>>& to, const T* from, Size count) {
  Lanes<Compute<T>> buffer;
  const Compute<T>* a = read_block(buffer, from, count);
  for (int j = 0; j < block_length; ++j) to[j] += a[j];
}

/// sum = x + residual of n elements, rounded. Returns sum, which may be either.
template <class T>
const T* add_row(Size n, const T* x, const T* residual, T* sum) {
  using C = Compute<T>;
  Lanes<C> buffer_a, buffer_b, result;
  for (Size j = 0; j < n; j += block_length) {
    const C* a = read_block(buffer_a, x + j, n - j);
    const C* b = read_block(buffer_b, residual + j, n - j);
    for (int k = 0; k < block_length; ++k) result[k] = a[k] + b[k];
    store_block(sum + j, result, n - j);
  }
  return sum;
}

/// The sum of a block, as a tree of constant shape.
template <class C>
[[gnu::always_inline]] inline C sum_lanes(Lanes<C>& x) {
  for (int j = 0; j < 16; ++j) x[j] += x[j + 16];
  for (int j = 0; j < 8; ++j) x[j] += x[j + 8];
  for (int j = 0; j < 4; ++j) x[j] += x[j + 4];
  return (x[0] + x[2]) + (x[1] + x[3]);
}

/// The largest element of a block.
template <class C>
[[gnu::always_inline]] inline C max_lanes(Lanes<C>& x) {
  for (int j = 0; j < 16; ++j) x[j] = x[j] > x[j + 16] ? x[j] : x[j + 16];
  for (int j = 0; j < 8; ++j) x[j] = x[j] > x[j + 8] ? x[j] : x[j + 8];
  for (int j = 0; j < 4; ++j) x[j] = x[j] > x[j + 4] ? x[j] : x[j + 4];
  for (int j = 0; j < 2; ++j) x[j] = x[j] > x[j + 2] ? x[j] : x[j + 2];
  return x[0] > x[1] ? x[0] : x[1];
}

}  // namespace dspp::cpu
