// SPDX-License-Identifier: Apache-2.0
/// JSON objects, written member by member.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

#include <dspp/base/printable.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// An object that grows: JsonObject().add("step", 3).add("bytes", JsonObject().add("planned", 64)).text().
///
/// Real numbers are written with the fewest digits that read back to the same number; those that are not finite, which
/// JSON lacks, as null. In strings a byte that is no UTF-8 becomes the replacement character; what acts unseen (see
/// printable()) is escaped, so that a line of JSON on a terminal is what it looks like.
class JsonObject {
 public:
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonObject& add(std::string_view key, T value) {
    return add_raw(key, std::to_string(value));
  }
  JsonObject& add(std::string_view key, double value);
  JsonObject& add(std::string_view key, std::same_as<bool> auto value) {
    return add_raw(key, value ? "true" : "false");
  }
  JsonObject& add(std::string_view key, std::string_view value) { return add_raw(key, quoted(value)); }
  JsonObject& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  JsonObject& add(std::string_view key, const JsonObject& value) { return add_raw(key, value.text()); }

  /// On one line, without its end.
  std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonObject& add_raw(std::string_view key, std::string_view value);
  static std::string quoted(std::string_view text);

  std::string members_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE JsonObject& JsonObject::add_raw(std::string_view key, std::string_view value) {
  if (!members_.empty()) members_ += ",";
  members_ += quoted(key) + ":";
  members_ += value;
  return *this;
}

DSPP_INLINE JsonObject& JsonObject::add(std::string_view key, double value) {
  if (!std::isfinite(value)) return add_raw(key, "null");
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return add_raw(key, std::string_view(text, static_cast<std::size_t>(end - text)));
}

DSPP_INLINE std::string JsonObject::quoted(std::string_view text) {
  const auto escaped = [](long code) { return "\\u" + detail::hex_digits(code, 4); };
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = detail::first_character(text.substr(at));
    const std::string_view character = text.substr(at, bytes);
    at += bytes;
    if (code < 0)
      out += escaped(0xfffd);
    else if (code == '"' || code == '\\')
      (out += '\\') += character;
    else if (!detail::acts_unseen(code))
      out += character;
    else if (code < 0x10000)
      out += escaped(code);
    else  // as two halves
      out += escaped(0xd800 + ((code - 0x10000) >> 10)) + escaped(0xdc00 + ((code - 0x10000) & 0x3ff));
  }
  return out + '"';
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
