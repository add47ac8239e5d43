// SPDX-License-Identifier: Apache-2.0
/// GPT-2's alphabet: one character per byte, so that a vocabulary of byte strings can be written as text.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <dspp/base/config.hpp>

namespace dspp::data {

/// The character of a byte: the same code point if Latin-1 prints it (0x21-0x7e, 0xa1-0xac, 0xae-0xff), else the next
/// of U+0100 to U+0143. A space is written U+0120.
///
/// Source   Radford et al., Language models are unsupervised multitask learners (2019), section 2.2, and its code
constexpr char32_t byte_character(unsigned char byte);

/// Bytes as characters of the alphabet, in UTF-8.
std::string written_bytes(std::string_view bytes);

/// The bytes of a text in the alphabet; nothing if a character is not in it.
std::optional<std::string> read_written_bytes(std::string_view written);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

inline constexpr int byte_characters_end = 0x144;

/// Element c is the byte of character c, or -1.
constexpr auto bytes_of_characters() {
  std::array<short, byte_characters_end> bytes{};
  for (short& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte)
    bytes[static_cast<std::size_t>(byte_character(static_cast<unsigned char>(byte)))] = static_cast<short>(byte);
  return bytes;
}

}  // namespace detail

constexpr char32_t byte_character(unsigned char byte) {
  if (detail::stands_for_itself(byte)) return byte;
  char32_t character = 0x100;
  for (int before = 0; before < byte; ++before) character += detail::stands_for_itself(before) ? 0u : 1u;
  return character;
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string written_bytes(std::string_view bytes) {
  std::string written;
  for (const char c : bytes) {
    const char32_t character = byte_character(static_cast<unsigned char>(c));
    if (character < 0x80) {
      written += static_cast<char>(character);
    } else {
      written += static_cast<char>(0xc0u | (character >> 6));
      written += static_cast<char>(0x80u | (character & 0x3fu));
    }
  }
  return written;
}

DSPP_INLINE std::optional<std::string> read_written_bytes(std::string_view written) {
  static constexpr auto table = detail::bytes_of_characters();
  std::string bytes;
  for (std::size_t i = 0; i < written.size(); ++i) {
    std::size_t character = static_cast<unsigned char>(written[i]);
    if (character >= 0x80) {  // all characters of the alphabet have one or two bytes
      if ((character & 0xe0u) != 0xc0u || i + 1 == written.size()) return {};
      const std::size_t next = static_cast<unsigned char>(written[++i]);
      character = (character & 0x1fu) << 6 | (next & 0x3fu);
      if ((next & 0xc0u) != 0x80u || character < 0x80) return {};
    }
    if (character >= table.size() || table[character] < 0) return {};
    bytes += static_cast<char>(static_cast<unsigned char>(table[character]));
  }
  return bytes;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
