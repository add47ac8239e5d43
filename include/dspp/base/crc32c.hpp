// SPDX-License-Identifier: Apache-2.0
/// CRC-32C, the checksum of stored bytes, also computed from pieces on several ranks in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <dspp/base/config.hpp>

#if DSPP_HAS_SSE42()
#include <nmmintrin.h>
#endif

#include <dspp/base/types.hpp>

namespace dspp {

/// The checksum of the bytes, continued from `before`, the checksum of the bytes before them.
///
/// Detects every burst of up to 32 bits, and in up to 256 MiB every error of up to three bits.
///
/// Cost     one pass; 8 bytes per instruction if compiled for SSE4.2, of which three are under way
/// Source   RFC 3720 (iSCSI), 12.1 and B.4; Castagnoli, Brauer, Herrmann 1993 for the polynomial
std::uint32_t crc32c(const void* data, Size bytes, std::uint32_t before = 0);

/// What a piece contributes to the checksum of the whole, `bytes_after` bytes before its end:
///
///   crc32c(whole) = crc32c_of_zeros(bytes of whole) ^ share ^ share ^ ...   over pieces that make up the whole
///
/// in any order, since a checksum is linear over its bits.
///
/// Cost     one pass, and a few hundred instructions for the distance
std::uint32_t crc32c_share(const void* data, Size bytes, Size bytes_after);

/// The checksum of that many zero bytes.
constexpr std::uint32_t crc32c_of_zeros(Size bytes);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr std::uint32_t crc32c_polynomial = 0x82F63B78u;  // lowest power in the highest bit

/// Eight tables: of a byte followed by 0 to 7 zero bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_crc32c_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest & 1 ? (rest >> 1) ^ crc32c_polynomial : rest >> 1;
    tables[0][byte] = rest;
  }
  for (std::size_t after = 1; after < 8; ++after)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t rest = tables[after - 1][byte];
      tables[after][byte] = (rest >> 8) ^ tables[0][rest & 0xff];
    }
  return tables;
}
inline constexpr auto crc32c_tables = make_crc32c_tables();

/// Continues the remainder `rest` over the bytes, by tables.
inline std::uint32_t crc32c_by_tables(std::uint32_t rest, const unsigned char* data, Size bytes) {
  const auto& t = crc32c_tables;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    const std::uint32_t low =
        rest ^ (static_cast<std::uint32_t>(data[0]) | static_cast<std::uint32_t>(data[1]) << 8 |
                static_cast<std::uint32_t>(data[2]) << 16 | static_cast<std::uint32_t>(data[3]) << 24);
    rest = t[7][low & 0xff] ^ t[6][(low >> 8) & 0xff] ^ t[5][(low >> 16) & 0xff] ^ t[4][low >> 24] ^ t[3][data[4]] ^
           t[2][data[5]] ^ t[1][data[6]] ^ t[0][data[7]];
  }
  for (; bytes > 0; --bytes, ++data) rest = (rest >> 8) ^ t[0][(rest ^ *data) & 0xff];
  return rest;
}

/// The product a b modulo the polynomial.
constexpr std::uint32_t crc32c_product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (std::uint32_t power = 1u << 31; power != 0; power >>= 1) {
    if (a & power) sum ^= b;
    b = b & 1 ? (b >> 1) ^ crc32c_polynomial : b >> 1;
  }
  return sum;
}

/// x^(2^k) for each k.
constexpr std::array<std::uint32_t, 67> make_crc32c_powers() {
  std::array<std::uint32_t, 67> powers{};
  powers[0] = 1u << 30;
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = crc32c_product(powers[k - 1], powers[k - 1]);
  return powers;
}
inline constexpr auto crc32c_powers = make_crc32c_powers();

/// Continues the remainder `rest` over zero bytes: rest x^(8 bytes).
constexpr std::uint32_t crc32c_over_zeros(std::uint32_t rest, Size bytes) {
  for (std::size_t k = 3; bytes > 0; bytes >>= 1, ++k)
    if (bytes & 1) rest = crc32c_product(crc32c_powers[k], rest);
  return rest;
}

#if DSPP_HAS_SSE42()
inline std::uint64_t crc32c_of_word(std::uint64_t rest, const unsigned char* data) {
  std::uint64_t word;
  std::memcpy(&word, data, 8);
  return _mm_crc32_u64(rest, word);
}
#endif

/// The same by the fastest way of this build: of the processor's instruction three at a time are under way, each over a
/// part of its own.
inline std::uint32_t crc32c_remainder(std::uint32_t rest, const void* bytes_at, Size bytes) {
  const auto* data = static_cast<const unsigned char*>(bytes_at);
#if DSPP_HAS_SSE42()
  constexpr Size part = 16384;
  for (; bytes >= 3 * part; bytes -= 3 * part, data += 3 * part) {
    std::uint64_t first = rest, second = 0, third = 0;
    for (Size i = 0; i < part; i += 8) {
      first = crc32c_of_word(first, data + i);
      second = crc32c_of_word(second, data + part + i);
      third = crc32c_of_word(third, data + 2 * part + i);
    }
    rest = crc32c_over_zeros(static_cast<std::uint32_t>(first), part) ^ static_cast<std::uint32_t>(second);
    rest = crc32c_over_zeros(rest, part) ^ static_cast<std::uint32_t>(third);
  }
  std::uint64_t wide = rest;
  for (; bytes >= 8; bytes -= 8, data += 8) wide = crc32c_of_word(wide, data);
  rest = static_cast<std::uint32_t>(wide);
#endif
  return crc32c_by_tables(rest, data, bytes);
}

}  // namespace detail

inline std::uint32_t crc32c(const void* data, Size bytes, std::uint32_t before) {
  return ~detail::crc32c_remainder(~before, data, bytes);
}

inline std::uint32_t crc32c_share(const void* data, Size bytes, Size bytes_after) {
  return detail::crc32c_over_zeros(detail::crc32c_remainder(0, data, bytes), bytes_after);
}

constexpr std::uint32_t crc32c_of_zeros(Size bytes) {
  return ~detail::crc32c_over_zeros(~std::uint32_t{0}, bytes);
}

}  // namespace dspp
