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
/// than 64 levels, more than `most_values`, numbers that no f64 holds, comments, trailing commas, a byte order mark.
/// `who` begins the sentence of the error: "the header of 'model.safetensors'".
///
/// Memory   about 100 bytes a value; none for a text that is refused, unless for a doubled key: it is checked first
/// Throws   Error(file), with the first byte that is wrong
Json parse_json(std::string_view text, const std::string& who, Size most_values = Size{1} << 23);

/// Reads an object as parse_json does, one member after another: begin(members), then f(key, value) for each. Whether
/// keys come twice is the caller's to see.
///
/// Memory   of one member at a time, each of at most `most_values`
/// Throws   Error(file), also if the text is another value
template <class Begin, class F>
void for_each_json_member(std::string_view text, const std::string& who, Size most_values, Begin begin, F f);

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

/// Goes over a text twice: the first time without keeping anything, so that what is refused takes no memory.
class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& who, Size most_values)
      : text_(text), who_(who), most_values_(most_values), values_left_(most_values) {}

  Json read_all() {
    check_encoding();
    read_value(nullptr, 0);
    end();
    Json value;
    read_value(&value, 0);
    return value;
  }

  /// The object's members one by one; each may have `most_values`.
  template <class Begin, class F>
  void read_each(Begin begin, F f) {
    check_encoding();
    Size members = 0;
    for_members(nullptr, [&] {
      ++members;
      read_value(nullptr, 1);
    });
    begin(members);
    std::string key;
    for_members(&key, [&] {
      Json value;
      read_value(&value, 1);
      f(std::move(key), value);
    });
  }

 private:
  static constexpr int deepest = 64;

  [[noreturn]] void refuse(std::size_t at, const std::string& what) const {
    fail(ErrorCode::file, "dspp: " + who_ + " needs valid JSON, but byte " + std::to_string(at) + " " + what +
                              ". Write the file again.");
  }

  void check_encoding() const {
    if (text_.starts_with("\xef\xbb\xbf")) refuse(0, "begins a byte order mark");
    const Size bad = first_bad_utf8(text_);
    if (bad >= 0) refuse(static_cast<std::size_t>(bad), "is not UTF-8");
  }
  /// Nothing but white space is left. Goes back to the beginning.
  void end() {
    skip_space();
    if (at_ != text_.size()) refuse(at_, "comes after the end");
    at_ = 0, values_left_ = most_values_;
  }

  /// f() before the value of each member, whose name is in `key` unless that is null.
  template <class F>
  void for_members(std::string* key, F f) {
    skip_space();
    expect('{');
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        read_string(key);
        skip_space();
        expect(':');
        values_left_ = most_values_;
        f();
        skip_space();
      } while (take(','));
      expect('}');
    }
    end();
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

  // Of the functions below each puts what it reads into its first argument, unless that is null.

  void read_value(Json* into, int depth) {
    if (depth > deepest) refuse(at_, "opens more than 64 levels");
    if (--values_left_ < 0) refuse(at_, "begins more values than are read");
    skip_space();
    switch (peek()) {
      case '{': return read_object(into, depth);
      case '[': return read_array(into, depth);
      case '"':
        if (into) into->kind = Json::Kind::string;
        return read_string(into ? &into->string : nullptr);
      case 't': return read_word(into, "true", Json::Kind::boolean, true);
      case 'f': return read_word(into, "false", Json::Kind::boolean, false);
      case 'n': return read_word(into, "null", Json::Kind::null, false);
      default: return read_number(into);
    }
  }

  void read_word(Json* into, std::string_view word, Json::Kind kind, bool truth) {
    if (text_.substr(at_, word.size()) != word) refuse(at_, "begins no value");
    at_ += word.size();
    if (into) into->kind = kind, into->boolean = truth;
  }

  void read_array(Json* into, int depth) {
    if (into) into->kind = Json::Kind::array;
    expect('[');
    skip_space();
    if (take(']')) return;
    do {
      read_value(into ? &into->items.emplace_back() : nullptr, depth + 1);
      skip_space();
    } while (take(','));
    expect(']');
  }

  void read_object(Json* into, int depth) {
    const std::size_t start = at_;
    if (into) into->kind = Json::Kind::object;
    expect('{');
    skip_space();
    if (take('}')) return;
    do {
      skip_space();
      read_string(into ? &into->keys.emplace_back() : nullptr);
      skip_space();
      expect(':');
      read_value(into ? &into->items.emplace_back() : nullptr, depth + 1);
      skip_space();
    } while (take(','));
    expect('}');
    if (!into) return;
    std::vector<std::string_view> sorted(into->keys.begin(), into->keys.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) refuse(start, "opens an object that names " + json_quoted(*twice) + " twice");
  }

  std::size_t digits() {
    const std::size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - start;
  }

  void read_number(Json* into) {
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
    const char *first = text_.data() + start, *last = text_.data() + at_;
    double real = 0;
    if (std::from_chars(first, last, real).ec != std::errc()) refuse(start, "begins a number that no f64 holds");
    if (!into) return;
    into->real = real;
    const bool fits = integer && std::from_chars(first, last, into->integer).ec == std::errc();
    into->kind = fits ? Json::Kind::integer : Json::Kind::real;
  }

  void read_string(std::string* out) {
    expect('"');
    if (out) {
      std::size_t end = at_;  // at most: a string that grows takes three times its bytes
      while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2u : 1u;
      out->clear();
      out->reserve(std::min(end, text_.size()) - at_);
    }
    while (true) {
      if (at_ >= text_.size()) refuse(at_, "is past the end");
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) refuse(at_, "is a control character in a string");
      ++at_;
      if (c == '"') return;
      if (c == '\\')
        read_escape(out);
      else if (out)
        *out += c;
    }
  }

  void read_escape(std::string* out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const char c = peek();
    ++at_;
    const std::size_t which = letters.find(c);
    if (which != std::string_view::npos) {
      if (out) *out += meanings[which];
      return;
    }
    if (c != 'u') refuse(at_ - 1, "is no escape");
    std::uint32_t code = read_hex4();
    if (code >= 0xd800 && code < 0xdc00 && take('\\') && take('u')) {
      const std::uint32_t low = read_hex4();
      code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : 0xd800u;
    }
    if (code >= 0xd800 && code < 0xe000) refuse(at_ - 1, "ends half of a surrogate pair");
    if (out) append_utf8(*out, code);
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
  Size most_values_, values_left_;
};

}  // namespace detail

inline Json parse_json(std::string_view text, const std::string& who, Size most_values) {
  return detail::JsonReader(text, who, most_values).read_all();
}

template <class Begin, class F>
void for_each_json_member(std::string_view text, const std::string& who, Size most_values, Begin begin, F f) {
  detail::JsonReader(text, who, most_values).read_each(begin, f);
}

}  // namespace dspp
