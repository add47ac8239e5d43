// SPDX-License-Identifier: Apache-2.0
/// External text made safe for terminals, logs and pages: names of files and tensors, values of options.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <dspp/base/config.hpp>

namespace dspp {

enum class LineEnds { escaped, kept };

/// `text` with everything escaped that is not shown: control characters and escape sequences (\n, \x1b), marks that
/// change the writing direction or have no width (\u202e), and bytes that are not UTF-8 (\xff). Idempotent.
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::escaped);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The first character of a text: its code point and its number of bytes; -1 and 1 if it is not UTF-8.
struct Utf8Character {
  long code = -1;
  std::size_t bytes = 1;
};

Utf8Character first_character(std::string_view text);

/// Control characters, line separators, direction marks, and zero-width characters.
constexpr bool acts_unseen(long code) {
  constexpr struct {
    long first, last;
  } ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},
                {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  for (const auto& range : ranges)
    if (code >= range.first && code <= range.last) return true;
  return false;
}

/// The lowest `digits` hexadecimal digits of a number.
std::string hex_digits(long number, int digits);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Utf8Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<long>(static_cast<unsigned char>(text[i])); };
  const long lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  constexpr long least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  long code = lead & (0x7f >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

DSPP_INLINE std::string hex_digits(long number, int digits) {
  std::string text;
  while (digits-- > 0) text += "0123456789abcdef"[number >> (4 * digits) & 15];
  return text;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string printable(std::string_view text, LineEnds line_ends) {
  const auto shown = [](char c) { return c >= ' ' && c <= '~'; };
  std::string out(text.begin(), std::find_if_not(text.begin(), text.end(), shown));
  for (std::size_t at = out.size(); at < text.size();) {
    const auto [code, bytes] = detail::first_character(text.substr(at));
    const std::string_view character = text.substr(at, bytes);
    at += bytes;
    if (code < 0)
      out.append("\\x").append(detail::hex_digits(static_cast<unsigned char>(character[0]), 2));
    else if (!detail::acts_unseen(code) || (code == '\n' && line_ends == LineEnds::kept))
      out += character;
    else if (code == '\n' || code == '\t' || code == '\r')
      out += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
    else if (code < 0x100)
      out.append("\\x").append(detail::hex_digits(code, 2));
    else
      out.append(code < 0x10000 ? "\\u" : "\\U").append(detail::hex_digits(code, code < 0x10000 ? 4 : 8));
  }
  return out;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
