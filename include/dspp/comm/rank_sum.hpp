// SPDX-License-Identifier: Apache-2.0
/// Sums over ranks: in rank order, bf16 and f16 in f32 and rounded once, integers modulo 2^bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <dspp/base/digest.hpp>
#include <dspp/base/element.hpp>
#include <dspp/base/types.hpp>
#include <dspp/comm/call_site.hpp>

namespace dspp::detail {

template <class T>
struct SumOf {
  using type = Compute<T>;
};
template <>
struct SumOf<std::int32_t> {
  using type = std::uint32_t;  // unsigned: overflow wraps instead of being undefined
};
template <>
struct SumOf<std::int64_t> {
  using type = std::uint64_t;
};

inline constexpr int sum_block = 512;

/// The elements in the type that they are summed in; f16, whose single conversions are slow, is converted into
/// `buffer`.
template <class T, class Sum>
const auto* summands(const T* from, int length, Sum* buffer) {
  if constexpr (std::is_same_v<T, f16>) {
    convert_elements(from, length, buffer);
    return static_cast<const Sum*>(buffer);
  } else {
    return from;
  }
}

/// out[0, length) = sources[0][at + i] + ... + sources[ranks - 1][at + i]. The sums are built in a separate block, so
/// out may be one of the summands and the loops still vectorise; a constant Length lets g++ do so at -O2.
template <class T, class Length>
void sum_one_block(const void* const* sources, int ranks, Size at, Length length, T* out) {
  using Sum = typename SumOf<T>::type;
  Sum sums[sum_block];
  Sum wide[2][std::is_same_v<T, f16> ? sum_block : 1];
  const auto source = [&](int r) { return summands(static_cast<const T*>(sources[r]) + at, length, wide[r > 0]); };
  const auto *first = source(0), *second = source(1);
  for (int i = 0; i < length; ++i) sums[i] = static_cast<Sum>(first[i]) + static_cast<Sum>(second[i]);
  for (int r = 2; r < ranks; ++r) {
    const auto* next = source(r);
    for (int i = 0; i < length; ++i) sums[i] += static_cast<Sum>(next[i]);
  }
  if constexpr (std::is_same_v<T, f16>)
    convert_elements(sums, length, out);
  else
    for (int i = 0; i < length; ++i) out[i] = static_cast<T>(sums[i]);
}

template <class T>
void sum_elements(const void* const* sources, int ranks, Size at, Size count, T* out) {
  Size i = 0;
  for (; i + sum_block <= count; i += sum_block) {
    sum_one_block(sources, ranks, at + i, std::integral_constant<int, sum_block>{}, out + i);
  }
  if (i < count) sum_one_block(sources, ranks, at + i, static_cast<int>(count - i), out + i);
}

/// True if an element is infinite or NaN: its exponent's bits are all set.
template <class T>
bool has_nonfinite(const T* x, Size length) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  constexpr int fraction = sizeof(T) == 8 ? 52 : sizeof(T) == 4 ? 23 : std::is_same_v<T, bf16> ? 7 : 10;
  constexpr auto exponent = static_cast<Bits>((Bits{1} << (8 * sizeof(T) - 1)) - (Bits{1} << fraction));
  bool found = false;
  for (Size i = 0; i < length; ++i) {
    Bits bits;
    std::memcpy(&bits, x + i, sizeof bits);
    found |= (bits & exponent) == exponent;
  }
  return found;
}

/// Adds the digest of those sums, at `place` bytes of the whole, to `digest`. They are computed apart: `out` may hold a
/// wrong bit, and the digest then differs.
template <class T>
[[gnu::noinline]] void digest_elements(const void* const* sources, int ranks, Size at, Size count, Size place,
                                       SumDigest& digest) {
  PlacedDigest of_part;
  T sums[sum_block];
  for (Size i = 0; i < count; i += sum_block) {
    const Size length = count - i < sum_block ? count - i : sum_block;
    sum_elements(sources, ranks, at + i, length, sums);
    of_part.add(sums, length * static_cast<Size>(sizeof(T)), place + i * static_cast<Size>(sizeof(T)));
    digest.nonfinite |= has_nonfinite(sums, length);
  }
  digest.value += of_part.value();
  digest.made = true;
}

/// out[i] = the sum over `ranks` >= 2 sources of element at + i, for i in [0, count). Any `type` but u8.
inline void sum_over_ranks(ElementType type, const void* const* sources, int ranks, Size at, Size count, void* out) {
  switch (type) {
    case ElementType::f64: return sum_elements(sources, ranks, at, count, static_cast<double*>(out));
    case ElementType::f32: return sum_elements(sources, ranks, at, count, static_cast<float*>(out));
    case ElementType::bf16: return sum_elements(sources, ranks, at, count, static_cast<bf16*>(out));
    case ElementType::f16: return sum_elements(sources, ranks, at, count, static_cast<f16*>(out));
    case ElementType::i32: return sum_elements(sources, ranks, at, count, static_cast<std::int32_t*>(out));
    case ElementType::i64: return sum_elements(sources, ranks, at, count, static_cast<std::int64_t*>(out));
    case ElementType::u8: return;
  }
}

/// The digest of the same elements, at `place` bytes of a slice, added to `digest`. Call it before the sum, which may
/// replace a source.
inline void digest_over_ranks(ElementType type, const void* const* sources, int ranks, Size at, Size count, Size place,
                              SumDigest& digest) {
  switch (type) {
    case ElementType::f64: return digest_elements<double>(sources, ranks, at, count, place, digest);
    case ElementType::f32: return digest_elements<float>(sources, ranks, at, count, place, digest);
    case ElementType::bf16: return digest_elements<bf16>(sources, ranks, at, count, place, digest);
    case ElementType::f16: return digest_elements<f16>(sources, ranks, at, count, place, digest);
    default: return;
  }
}

}  // namespace dspp::detail
