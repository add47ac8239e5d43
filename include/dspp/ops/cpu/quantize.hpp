// SPDX-License-Identifier: Apache-2.0
/// Elements as whole numbers of few bits, and sums of them.
#pragma once

#include <cstddef>

#include <dspp/ops/kernels.hpp>

namespace dspp {

template <class T>
struct Kernel<kernels::Quantize<T>, Cpu> {
  static void run(const QuantizedParts& parts, Size rows, Size columns, const T* x, std::byte* to, T* error = nullptr,
                  double keep = 0);
};

template <class T>
struct Kernel<kernels::SumQuantized<T>, Cpu> {
  static void run(const QuantizedParts& parts, Size senders, Size rows, const std::byte* from, T* y);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <dspp/base/bits.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

/// The scale of a block, and what its elements are multiplied with; 0 and 0, or NaN and 0, if all numbers are 0.
template <class C>
struct BlockScale {
  C scale, inverse;
};

/// In integers, whose order that of magnitudes is and in which a NaN is above all numbers.
template <class C>
BlockScale<C> scale_of(Size n, const C* x, int levels) {
  using Bits = std::conditional_t<sizeof(C) == 8, std::int64_t, std::int32_t>;
  constexpr Bits magnitude = std::numeric_limits<Bits>::max();
  Bits largest = 0;
  for (Size i = 0; i < n; ++i) largest = std::max(largest, static_cast<Bits>(bits_as<Bits>(x[i]) & magnitude));
  if (largest >= bits_as<Bits>(std::numeric_limits<C>::infinity())) return {std::numeric_limits<C>::quiet_NaN(), 0};
  const C scale = bits_as<C>(largest) / static_cast<C>(levels);
  if (scale < std::numeric_limits<C>::min()) return {0, 0};
  return {scale, 1 / scale};
}

template <class C>
inline constexpr C to_whole = sizeof(C) == 8 ? C(0x1.8p52) : C(0x1.8p23);  // added, it leaves no place for fractions

/// The numbers of a block: the nearest whole ones.
template <class C>
void write_numbers(Size n, int bits, const C* x, std::uint8_t* to) {
  std::int8_t numbers[QuantizedParts::block];
  for (Size i = 0; i < n; ++i) {
    const C whole = (x[i] + to_whole<C>)-to_whole<C>;
    numbers[i] = static_cast<std::int8_t>(static_cast<int>(whole));
  }
  if (bits == 8) return static_cast<void>(std::memcpy(to, numbers, static_cast<std::size_t>(n)));
  for (Size i = 0; i + 1 < n; i += 2)
    to[i / 2] = static_cast<std::uint8_t>((numbers[i] & 15) | (numbers[i + 1] & 15) << 4);
  if (n % 2 == 1) to[n / 2] = static_cast<std::uint8_t>(numbers[n - 1] & 15);
}

/// What a block's numbers lost of x, of which `scaled` is x over the scale, comes to its errors.
template <class T, class C>
void keep_errors(Size n, const C* x, const C* scaled, C scale, C keep, T* error) {
  if (scale != scale) return static_cast<void>(std::fill_n(error, n, T(0)));
  for (Size i = 0; i < n; ++i) {
    const C whole = (scaled[i] + to_whole<C>)-to_whole<C>;
    error[i] = static_cast<T>(keep * static_cast<C>(error[i]) + (1 - keep) * (x[i] - scale * whole));
  }
}

/// sum[i] += scale * number i, or = for the first of the summands.
template <class C>
void add_numbers(Size n, int bits, const std::uint8_t* from, C scale, bool first, C* sum) {
  C values[QuantizedParts::block];
  if (bits == 8) {
    for (Size i = 0; i < n; ++i) values[i] = static_cast<C>(static_cast<std::int8_t>(from[i])) * scale;
  } else {
    const auto number = [](int nibble) { return static_cast<C>((nibble ^ 8) - 8); };
    for (Size i = 0; i + 1 < n; i += 2) {
      values[i] = number(from[i / 2] & 15) * scale;
      values[i + 1] = number(from[i / 2] >> 4) * scale;
    }
    if (n % 2 == 1) values[n - 1] = number(from[n / 2] & 15) * scale;
  }
  if (first) return static_cast<void>(std::copy_n(values, n, sum));
  for (Size i = 0; i < n; ++i) sum[i] += values[i];
}

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::Quantize<T>, Cpu>::run(const QuantizedParts& parts, Size rows, Size columns, const T* x,
                                            std::byte* to, T* error, double keep) {
  using C = Compute<T>;
  const Size blocks = parts.blocks();
  cpu::parallel_for(rows * columns * blocks, 64, [&](Size begin, Size end) {
    C values[QuantizedParts::block], whole[QuantizedParts::block];
    for (Size i = begin; i < end; ++i) {
      const Size part = i / blocks, b = i % blocks, n = parts.elements_of(b);
      const Size row = part / columns, column = part % columns;
      const Size at = part * parts.count + b * QuantizedParts::block;
      const T* const from = x + at;
      for (Size k = 0; k < n; ++k) values[k] = static_cast<C>(from[k]);
      if (error != nullptr)
        for (Size k = 0; k < n; ++k) whole[k] = values[k] += static_cast<C>(error[at + k]);
      const auto [scale, inverse] = cpu::scale_of<C>(n, values, parts.levels());
      // A loop of its own, so that no compiler makes one rounding of the product's and the number's.
      for (Size k = 0; k < n; ++k) values[k] = inverse == 0 ? C(0) : values[k] * inverse;
      auto* const out = reinterpret_cast<std::uint8_t*>(to) + (column * rows + row) * parts.bytes();
      std::memcpy(out + b * static_cast<Size>(sizeof(C)), &scale, sizeof(C));
      cpu::write_numbers<C>(n, parts.bits, values,
                            out + parts.numbers_at() + b * QuantizedParts::block * parts.bits / 8);
      if (error != nullptr) cpu::keep_errors(n, whole, values, scale, static_cast<C>(keep), error + at);
    }
  });
}

template <class T>
void Kernel<kernels::SumQuantized<T>, Cpu>::run(const QuantizedParts& parts, Size senders, Size rows,
                                                const std::byte* from, T* y) {
  using C = Compute<T>;
  const Size blocks = parts.blocks();
  cpu::parallel_for(rows * blocks, 64, [&](Size begin, Size end) {
    C sum[QuantizedParts::block];
    for (Size i = begin; i < end; ++i) {
      const Size row = i / blocks, b = i % blocks, n = parts.elements_of(b);
      for (Size s = 0; s < senders; ++s) {
        const auto* const in = reinterpret_cast<const std::uint8_t*>(from) + (s * rows + row) * parts.bytes();
        C scale;
        std::memcpy(&scale, in + b * static_cast<Size>(sizeof(C)), sizeof(C));
        cpu::add_numbers<C>(n, parts.bits, in + parts.numbers_at() + b * QuantizedParts::block * parts.bits / 8, scale,
                            s == 0, sum);
      }
      T* const out = y + row * parts.count + b * QuantizedParts::block;
      for (Size k = 0; k < n; ++k) out[k] = static_cast<T>(sum[k]);
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
