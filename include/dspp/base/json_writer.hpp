// SPDX-License-Identifier: Apache-2.0
/// The one JSON writer: strings, numbers, lists and objects as text.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/printable.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// What a string escapes. `demanded`: what JSON demands, keeping every other byte. `unseen`: also invisible characters
/// (see printable()), so that JSON is shown on a terminal as it is; a byte that is not UTF-8 becomes the replacement
/// character.
enum class JsonEscapes { demanded, unseen };

/// The string between quotation marks.
std::string json_quoted(std::string_view text, JsonEscapes escapes = JsonEscapes::demanded);

/// The fewest digits that read back to the same number; null if it is not finite, which JSON lacks.
std::string json_number(double value);
/// The same with a point or an exponent, as Python writes it, so that readers that distinguish whole numbers do not
/// take it for one. The number must be finite.
std::string json_real(double value);

/// [1,2]
std::string json_list(std::span<const Size> numbers);

/// An object of members, or a list of items, whose values are JSON already, a line each, in the layout of Python's
/// json.dumps(..., indent=2, sort_keys=True) at a depth.
std::string json_lines(const std::map<std::string, std::string>& members, int depth = 0);
std::string json_list_lines(const std::vector<std::string>& items, int depth = 0);

/// An object built by appending: JsonObject().add("step", 3).add("bytes", JsonObject().add("planned", 64)).text().
class JsonObject {
 public:
  explicit JsonObject(JsonEscapes escapes = JsonEscapes::unseen) : escapes_(escapes) {}

  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonObject& add(std::string_view key, T value) {
    return add_json(key, std::to_string(value));
  }
  JsonObject& add(std::string_view key, double value) { return add_json(key, json_number(value)); }
  JsonObject& add(std::string_view key, std::same_as<bool> auto value) {
    return add_json(key, value ? "true" : "false");
  }
  JsonObject& add(std::string_view key, std::string_view value) { return add_json(key, json_quoted(value, escapes_)); }
  JsonObject& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  JsonObject& add(std::string_view key, const JsonObject& value) { return add_json(key, value.text()); }
  /// A value that is JSON already.
  JsonObject& add_json(std::string_view key, std::string_view value);

  /// Starts a new line with the next member.
  JsonObject& new_line();

  /// On one line except for new_line(), without a line end.
  std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonEscapes escapes_;
  std::string members_;
  bool line_begins_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string json_quoted(std::string_view text, JsonEscapes escapes) {
  const auto escaped = [](long code) { return "\\u" + detail::hex_digits(code, 4); };
  const bool demanded = escapes == JsonEscapes::demanded;
  constexpr std::string_view special = "\b\f\n\r\t", letters = "bfnrt";
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = demanded ? detail::Utf8Character{static_cast<unsigned char>(text[at]), 1}
                                        : detail::first_character(text.substr(at));
    const std::string_view character = text.substr(at, bytes);
    const std::size_t letter = demanded ? special.find(character[0]) : std::string_view::npos;
    at += bytes;
    if (code < 0)
      out += escaped(0xfffd);
    else if (code == '"' || code == '\\')
      (out += '\\') += character;
    else if (letter != std::string_view::npos)
      (out += '\\') += letters[letter];
    else if (demanded ? code >= 0x20 : !detail::acts_unseen(code))
      out += character;
    else if (code < 0x10000)
      out += escaped(code);
    else  // as a surrogate pair
      out += escaped(0xd800 + ((code - 0x10000) >> 10)) + escaped(0xdc00 + ((code - 0x10000) & 0x3ff));
  }
  return out + '"';
}

DSPP_INLINE std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

DSPP_INLINE std::string json_real(double value) {
  char digits[32];
  const double magnitude = std::abs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);  // as Python does
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value, format).ptr);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

DSPP_INLINE std::string json_list(std::span<const Size> numbers) {
  std::string text = "[";
  for (const Size number : numbers) text += (text.size() > 1 ? "," : "") + std::to_string(number);
  return text + "]";
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

DSPP_INLINE std::string json_list_lines(const std::vector<std::string>& items, int depth) {
  const std::string indent(2 * static_cast<std::size_t>(depth), ' ');
  std::string text = "[", between = "\n";
  for (const std::string& item : items) {
    text += between + indent + "  " + item;
    between = ",\n";
  }
  return text + (items.empty() ? "" : "\n" + indent) + "]";
}

DSPP_INLINE JsonObject& JsonObject::new_line() {
  line_begins_ = true;
  return *this;
}

DSPP_INLINE JsonObject& JsonObject::add_json(std::string_view key, std::string_view value) {
  if (!members_.empty()) members_ += ",";
  if (line_begins_) members_ += "\n";
  line_begins_ = false;
  members_ += json_quoted(key, escapes_) + ":";
  members_ += value;
  return *this;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
