// SPDX-License-Identifier: Apache-2.0
/// JSON objects, written member by member.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

#include <dspp/base/types.hpp>

namespace dspp {

/// An object that grows: JsonObject().add("step", 3).add("bytes", JsonObject().add("planned", 64)).text().
///
/// Real numbers are written with the fewest digits that read back to the same number; those that are not finite, which
/// JSON lacks, as null. Strings must be UTF-8.
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
  JsonObject& add_raw(std::string_view key, std::string_view value) {
    if (!members_.empty()) members_ += ",";
    members_ += quoted(key) + ":";
    members_ += value;
    return *this;
  }
  static std::string quoted(std::string_view text);

  std::string members_;
};

// ---------------------------------------------------------------------------------------------------------------------

inline JsonObject& JsonObject::add(std::string_view key, double value) {
  if (!std::isfinite(value)) return add_raw(key, "null");
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return add_raw(key, std::string_view(text, static_cast<std::size_t>(end - text)));
}

inline std::string JsonObject::quoted(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (code < 0x20)
      out += {'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15]};
    else
      out += c;
  }
  return out + '"';
}

}  // namespace dspp
