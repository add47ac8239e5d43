// SPDX-License-Identifier: Apache-2.0
/// A strict reader of JSON (RFC 8259).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/io/json_text.hpp>

namespace dspp {

/// A value. Of an object, keys[i] belongs to items[i], in the order of the text.
struct Json {
  enum class Kind { null, boolean, integer, real, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  Size integer = 0;  ///< of a number without fraction and exponent that fits
  double real = 0;   ///< of any number
  std::string string;
  std::vector<std::string> keys;
  std::vector<Json> items;

  bool is(Kind k) const { return kind == k; }

  /// The member of that name, or null. Cost: linear in the members.
  const Json* find(std::string_view key) const {
    const auto at = std::find(keys.begin(), keys.end(), key);
    return at == keys.end() ? nullptr : &items[static_cast<std::size_t>(at - keys.begin())];
  }
};

/// Reads one value and nothing after it but white space. Not accepted: bad UTF-8, doubled keys, lone surrogates, more
/// than 64 levels, more than `most_values`, numbers that no f64 holds, comments, trailing commas. `who` begins the
/// sentence of the error: "the header of 'model.safetensors'".
///
/// Memory   about 100 bytes a value
/// Throws   Error(file)
Json parse_json(std::string_view text, const std::string& who, Size most_values = Size{1} << 23);

/// Reads an object as parse_json does, one member after another: f(key, value). Whether keys come twice is the caller's
/// to see.
///
/// Memory   of one member at a time, each of at most `most_values`
/// Throws   Error(file), also if the text is another value
template <class F>
void for_each_json_member(std::string_view text, const std::string& who, Size most_values, F f);

/// A value in a few words, for sentences: 3, "gelu", true, null, "a list", "an object".
std::string json_in_words(const Json& value);

/// The offset of the first byte that is not UTF-8, or -1.
Size first_bad_utf8(std::string_view text);

// ---------------------------------------------------------------------------------------------------------------------

inline Size first_bad_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](std::size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u; };
    const auto follows = [&](std::size_t k) { return (byte(k) & 0xc0u) == 0x80u; };
    const unsigned first = byte(0), second = byte(1);
    std::size_t length = 0;
    if (first < 0x80) length = 1;
    if (first >= 0xc2 && first <= 0xdf && follows(1)) length = 2;
    // neither longer than need be (e0, f0) nor a surrogate (ed) nor beyond U+10FFFF (f4)
    if (first >= 0xe0 && first <= 0xef && follows(1) && follows(2) && !(first == 0xe0 && second < 0xa0) &&
        !(first == 0xed && second > 0x9f))
      length = 3;
    if (first >= 0xf0 && first <= 0xf4 && follows(1) && follows(2) && follows(3) && !(first == 0xf0 && second < 0x90) &&
        !(first == 0xf4 && second > 0x8f))
      length = 4;
    if (length == 0) return static_cast<Size>(i);
    i += length;
  }
  return -1;
}

inline std::string json_in_words(const Json& value) {
  constexpr std::size_t longest = 60;
  switch (value.kind) {
    case Json::Kind::null: return "null";
    case Json::Kind::boolean: return value.boolean ? "true" : "false";
    case Json::Kind::integer: return std::to_string(value.integer);
    case Json::Kind::real: return json_real(value.real);
    case Json::Kind::array: return "a list";
    case Json::Kind::object: return "an object";
    case Json::Kind::string: break;
  }
  if (value.string.size() <= longest) return json_quoted(value.string);
  std::size_t end = longest;
  while ((static_cast<unsigned char>(value.string[end]) & 0xc0u) == 0x80u) --end;  // not inside a character
  return json_quoted(std::string_view(value.string).substr(0, end)) + "...";
}

namespace detail {

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& who, Size most_values)
      : text_(text), who_(who), values_left_(most_values) {}

  Json read_all() {
    const Size bad = first_bad_utf8(text_);
    if (bad >= 0) refuse(static_cast<std::size_t>(bad), "is not UTF-8");
    Json value = read_value(0);
    skip_space();
    if (at_ != text_.size()) refuse(at_, "comes after the end");
    return value;
  }

  /// The object's members one by one; each may have `most_values`.
  template <class F>
  void read_each(F f) {
    const Size bad = first_bad_utf8(text_), most_values = values_left_;
    if (bad >= 0) refuse(static_cast<std::size_t>(bad), "is not UTF-8");
    skip_space();
    expect('{');
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        std::string key = read_string();
        skip_space();
        expect(':');
        values_left_ = most_values;
        f(std::move(key), read_value(1));
        skip_space();
      } while (take(','));
      expect('}');
    }
    skip_space();
    if (at_ != text_.size()) refuse(at_, "comes after the end");
  }

 private:
  static constexpr int deepest = 64;

  [[noreturn]] void refuse(std::size_t at, const std::string& what) const {
    fail(ErrorCode::file, "dspp: " + who_ + " needs valid JSON, but byte " + std::to_string(at) + " " + what +
                              ". Write the file again.");
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(at_, at_ < text_.size() ? std::string("is not the '") + c + "' expected" : "is past the end");
  }
  void skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++at_;
  }

  Json read_value(int depth) {
    if (depth > deepest) refuse(at_, "opens more than 64 levels");
    if (--values_left_ < 0) refuse(at_, "begins more values than are read");
    skip_space();
    Json value;
    switch (peek()) {
      case '{': read_object(value, depth); return value;
      case '[': read_array(value, depth); return value;
      case '"':
        value.kind = Json::Kind::string;
        value.string = read_string();
        return value;
      case 't': return read_word("true", Json::Kind::boolean, true);
      case 'f': return read_word("false", Json::Kind::boolean, false);
      case 'n': return read_word("null", Json::Kind::null, false);
      default: return read_number();
    }
  }

  Json read_word(std::string_view word, Json::Kind kind, bool truth) {
    if (text_.substr(at_, word.size()) != word) refuse(at_, "begins no value");
    at_ += word.size();
    Json value;
    value.kind = kind, value.boolean = truth;
    return value;
  }

  void read_array(Json& value, int depth) {
    value.kind = Json::Kind::array;
    expect('[');
    skip_space();
    if (take(']')) return;
    do {
      value.items.push_back(read_value(depth + 1));
      skip_space();
    } while (take(','));
    expect(']');
  }

  void read_object(Json& value, int depth) {
    value.kind = Json::Kind::object;
    const std::size_t start = at_;
    expect('{');
    skip_space();
    if (take('}')) return;
    do {
      skip_space();
      value.keys.push_back(read_string());
      skip_space();
      expect(':');
      value.items.push_back(read_value(depth + 1));
      skip_space();
    } while (take(','));
    expect('}');
    std::vector<std::string_view> sorted(value.keys.begin(), value.keys.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) refuse(start, "opens an object that names " + json_quoted(*twice) + " twice");
  }

  std::size_t digits() {
    const std::size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - start;
  }

  Json read_number() {
    const std::size_t start = at_;
    take('-');
    const bool zero = peek() == '0';
    const std::size_t whole = digits();
    bool integer = true;
    bool valid = whole > 0 && !(zero && whole > 1);
    if (take('.')) integer = false, valid = valid && digits() > 0;
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (!take('+')) take('-');
      integer = false, valid = valid && digits() > 0;
    }
    if (!valid) refuse(start, start < text_.size() ? "begins no value" : "is past the end");
    Json value;
    const char *first = text_.data() + start, *last = text_.data() + at_;
    if (std::from_chars(first, last, value.real).ec != std::errc()) refuse(start, "begins a number that no f64 holds");
    value.kind = integer && std::from_chars(first, last, value.integer).ec == std::errc() ? Json::Kind::integer
                                                                                          : Json::Kind::real;
    return value;
  }

  std::string read_string() {
    std::string out;
    expect('"');
    std::size_t end = at_;  // at most: a string that grows takes three times its bytes
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2u : 1u;
    out.reserve(std::min(end, text_.size()) - at_);
    while (true) {
      if (at_ >= text_.size()) refuse(at_, "is past the end");
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) refuse(at_, "is a control character in a string");
      ++at_;
      if (c == '"') return out;
      if (c == '\\')
        read_escape(out);
      else
        out += c;
    }
  }

  void read_escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const char c = peek();
    ++at_;
    const std::size_t which = letters.find(c);
    if (which != std::string_view::npos) {
      out += meanings[which];
      return;
    }
    if (c != 'u') refuse(at_ - 1, "is no escape");
    std::uint32_t code = read_hex4();
    if (code >= 0xd800 && code < 0xdc00 && take('\\') && take('u')) {
      const std::uint32_t low = read_hex4();
      code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : 0xd800u;
    }
    if (code >= 0xd800 && code < 0xe000) refuse(at_ - 1, "ends half of a surrogate pair");
    append_utf8(out, code);
  }

  std::uint32_t read_hex4() {
    std::uint32_t code = 0;
    const std::string_view hex = text_.substr(std::min(at_, text_.size()), 4);
    const auto end = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (hex.size() != 4 || end.ptr != hex.data() + 4) refuse(at_, "begins no four hexadecimal digits");
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& out, std::uint32_t code) {
    const auto put = [&](std::uint32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
    const auto follow = [&](int shift) { put(0x80u | ((code >> shift) & 0x3fu)); };
    if (code < 0x80) return put(code);
    if (code < 0x800) return put(0xc0u | (code >> 6)), follow(0);
    if (code < 0x10000) return put(0xe0u | (code >> 12)), follow(6), follow(0);
    put(0xf0u | (code >> 18)), follow(12), follow(6), follow(0);
  }

  std::string_view text_;
  const std::string& who_;
  std::size_t at_ = 0;
  Size values_left_;
};

}  // namespace detail

inline Json parse_json(std::string_view text, const std::string& who, Size most_values) {
  return detail::JsonReader(text, who, most_values).read_all();
}

template <class F>
void for_each_json_member(std::string_view text, const std::string& who, Size most_values, F f) {
  detail::JsonReader(text, who, most_values).read_each(f);
}

}  // namespace dspp
