// SPDX-License-Identifier: Apache-2.0
/// JSON names and values in error sentences.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <dspp/base/json_writer.hpp>

namespace dspp::io {

/// A text; if longer than `longest` bytes, cut there or up to three bytes before, with "...".
std::string shortened(std::string_view text, std::size_t longest = 200);
/// The same as a JSON string.
std::string json_name(std::string_view text, std::size_t longest = 200);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// A prefix of a longer text that does not split a character.
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

DSPP_INLINE std::string shortened(std::string_view text, std::size_t longest) {
  return text.size() <= longest ? std::string(text) : std::string(detail::first_bytes(text, longest)) + "...";
}

DSPP_INLINE std::string json_name(std::string_view text, std::size_t longest) {
  return text.size() <= longest ? json_quoted(text) : json_quoted(detail::first_bytes(text, longest)) + "...";
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
