// SPDX-License-Identifier: Apache-2.0
/// What writers of JSON need: strings, numbers and objects as text.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include <dspp/base/config.hpp>

namespace dspp {

/// The string between quotation marks, with escapes where JSON demands them.
std::string json_quoted(std::string_view text);

/// For sentences: a text, but of a longer one its first `longest` bytes, or up to three less, and "...".
std::string shortened(std::string_view text, std::size_t longest = 200);
/// The same between quotation marks.
std::string json_name(std::string_view text, std::size_t longest = 200);

/// The fewest digits that read back to the same number, with a point or an exponent, so that readers who tell whole
/// numbers from others take it for one of the others. The number must be finite.
std::string json_real(double value);

/// An object of members whose values are JSON already, a line each, sorted by name: {"a": 1} as Python's
/// json.dumps(..., indent=2, sort_keys=True) lays it out at a depth.
std::string json_lines(const std::map<std::string, std::string>& members, int depth = 0);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The first bytes of a longer text, but no part of a character.
std::string_view first_bytes(std::string_view text, std::size_t longest);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string_view first_bytes(std::string_view text, std::size_t longest) {
  while ((static_cast<unsigned char>(text[longest]) & 0xc0u) == 0x80u) --longest;
  return text.substr(0, longest);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  constexpr std::string_view special = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt", hex = "0123456789abcdef";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    const std::size_t which = special.find(c);
    if (which != std::string_view::npos)
      out += {'\\', letters[which]};
    else if (code < 0x20)
      out += {'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15]};
    else
      out += c;
  }
  return out + '"';
}

DSPP_INLINE std::string shortened(std::string_view text, std::size_t longest) {
  return text.size() <= longest ? std::string(text) : std::string(detail::first_bytes(text, longest)) + "...";
}

DSPP_INLINE std::string json_name(std::string_view text, std::size_t longest) {
  return text.size() <= longest ? json_quoted(text) : json_quoted(detail::first_bytes(text, longest)) + "...";
}

DSPP_INLINE std::string json_real(double value) {
  char digits[32];
  const double magnitude = std::abs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);  // Python's choice
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value, format).ptr);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

DSPP_INLINE std::string json_lines(const std::map<std::string, std::string>& members, int depth) {
  const std::string indent(2 * static_cast<std::size_t>(depth), ' ');
  std::string text = "{", between = "\n";
  for (const auto& [name, value] : members) {
    text += between + indent + "  " + json_quoted(name) + ": " + value;
    between = ",\n";
  }
  return text + (members.empty() ? "" : "\n" + indent) + "}";
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
