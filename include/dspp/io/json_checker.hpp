// SPDX-License-Identifier: Apache-2.0
/// Checks that a text is JSON. The internals of json.hpp, except for first_bad_utf8.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/io/json_text.hpp>

namespace dspp::io {

/// The offset of the first byte that is not UTF-8, or -1.
Size first_bad_utf8(std::string_view text);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

constexpr bool is_json_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/// The offset after the string that begins at text[at]. These three functions expect valid text.
std::size_t json_string_end(std::string_view text, std::size_t at);

/// The offset after the value that begins at text[at].
std::size_t json_value_end(std::string_view text, std::size_t at);

/// The content of a valid string; `room` stores it if the text has escapes.
std::string_view json_unquoted(std::string_view quoted, std::string& room);
/// The same in `out`.
void read_json_string(std::string_view quoted, std::string& out);

/// Checks a text without storing anything, so that rejected text takes no memory; then the keys of its objects.
class JsonChecker {
 public:
  JsonChecker(std::string_view text, std::string_view who, Size most_values)
      : text_(text), who_(who), most_values_(most_values), values_left_(most_values) {}

  /// The one value of the text.
  std::string_view check_value();

  /// The text is one object, each of whose members may have `most_values`; its check_keys() is left to the caller.
  /// Returns the number of members.
  Size check_members();

  /// Checks all objects in a part of the text that is a valid value.
  void check_keys(std::string_view value);

  /// Reads a string, into `out` unless that is null.
  void read_string(std::string* out);

 private:
  static constexpr int deepest = 64;

  /// The position of a key in the text: 8 bytes, half of a std::string_view.
  struct Key {
    std::uint32_t begin, bytes : 31, escaped : 1;
  };

  [[noreturn]] void refuse(std::size_t at, const std::string& what) const;
  void check_encoding() const;
  /// Fails unless only white space is left.
  void end();

  /// Checks the keys of the object that begins there, and drops them.
  void check_last_keys(std::size_t first, std::size_t object);

  std::string_view quoted(const Key& key) const { return text_.substr(key.begin, key.bytes); }

  /// Compares up to the first byte that differs: a long key with an escape may be compared with every other one.
  bool comes_before(const Key& a, const Key& b);

  /// The content of a string, byte by byte.
  struct Bytes {
    std::size_t at;         // of the next byte in the text
    std::string escaped{};  // the bytes of the last escape, at most 4
    std::size_t given = 0;  // of these, already returned
  };
  /// The next byte; -1 at the end.
  int next_byte(Bytes& bytes);

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c);
  void expect(char c);
  void skip_space() {
    while (is_json_space(peek())) ++at_;
  }

  void read_value(int depth);
  void read_word(std::string_view word);
  void read_array(int depth);
  void read_object(int depth);

  /// Reads an object, the value of each member by f().
  template <class F>
  void read_members(F f) {
    expect('{');
    skip_space();
    if (take('}')) return;
    do {
      skip_space();
      read_string(nullptr);
      skip_space();
      expect(':');
      f();
      skip_space();
    } while (take(','));
    expect('}');
  }

  std::size_t digits();
  void read_number();
  void read_escape(std::string* out);
  std::uint32_t read_hex4();
  static void append_utf8(std::string& out, std::uint32_t code);

  std::string_view text_;
  std::string_view who_;
  std::size_t at_ = 0;
  Size most_values_, values_left_;
  std::size_t open_keys_ = 0, most_open_keys_ = 0;  // of the objects open at one place
  std::vector<Key> keys_;                           // of those objects
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string_view JsonChecker::check_value() {
  check_encoding();
  skip_space();
  const std::size_t start = at_;
  read_value(0);
  const std::string_view value = text_.substr(start, at_ - start);
  end();
  check_keys(value);
  return value;
}

DSPP_INLINE Size JsonChecker::check_members() {
  check_encoding();
  skip_space();
  Size members = 0;
  read_members([&] {
    ++members;
    values_left_ = most_values_;
    read_value(1);
  });
  end();
  return members;
}

DSPP_INLINE void JsonChecker::check_keys(std::string_view value) {
  struct Object {
    std::size_t begin = 0, keys_before = 0;
  };
  std::array<Object, deepest + 1> open;
  std::size_t depth = 0;
  keys_.reserve(most_open_keys_);
  std::size_t at = static_cast<std::size_t>(value.data() - text_.data());
  const std::size_t stop = at + value.size();
  while (at < stop) {
    const std::size_t begin = at;
    const char c = text_[at];
    at = c == '"' ? json_string_end(text_, at) : at + 1;
    if (c == '{') open[depth++] = {begin, keys_.size()};
    if (c == '}') {
      --depth;
      check_last_keys(open[depth].keys_before, open[depth].begin);
    }
    if (c != '"') continue;
    const auto bytes = static_cast<std::uint32_t>(at - begin);
    while (at < stop && is_json_space(text_[at])) ++at;
    if (at == stop || text_[at] != ':') continue;
    const bool escaped = text_.substr(begin, bytes).find('\\') != std::string_view::npos;
    keys_.push_back({static_cast<std::uint32_t>(begin), bytes & 0x7fffffffu, escaped});
  }
}

DSPP_INLINE void JsonChecker::read_string(std::string* out) {
  const std::size_t start = at_;
  expect('"');
  if (out) {  // upper bound: growing a string takes three times its bytes
    out->clear();
    out->reserve(json_string_end(text_, start) - start - 2);
  }
  const auto plain = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; };
  while (true) {
    std::size_t stop = at_;
    while (stop < text_.size() && plain(text_[stop])) ++stop;
    if (out) out->append(text_, at_, stop - at_);
    at_ = stop;
    if (at_ >= text_.size()) refuse(at_, "is past the end");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20) refuse(at_, "is a control character in a string");
    ++at_;
    if (c == '"') return;
    read_escape(out);
  }
}

DSPP_INLINE void JsonChecker::refuse(std::size_t at, const std::string& what) const {
  fail(ErrorCode::file, "dspp: " + std::string(who_) + " needs valid JSON, but byte " + std::to_string(at) + " " +
                            what + ". Write the file again.");
}

DSPP_INLINE void JsonChecker::check_encoding() const {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  if (text_.size() > most) refuse(most, "is past the end of what is read");
  if (text_.starts_with("\xef\xbb\xbf")) refuse(0, "begins a byte order mark");
  const Size bad = first_bad_utf8(text_);
  if (bad >= 0) refuse(static_cast<std::size_t>(bad), "is not UTF-8");
}

DSPP_INLINE void JsonChecker::end() {
  skip_space();
  if (at_ != text_.size()) refuse(at_, "comes after the end");
}

DSPP_INLINE void JsonChecker::check_last_keys(std::size_t first, std::size_t object) {
  const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto less = [&](const Key& a, const Key& b) { return comes_before(a, b); };
  std::sort(begin, keys_.end(), less);
  const auto twice = std::adjacent_find(begin, keys_.end(), [&](const Key& a, const Key& b) { return !less(a, b); });
  if (twice != keys_.end()) {
    std::string room;
    refuse(object, "opens an object that names " + json_name(json_unquoted(quoted(*twice), room)) + " twice");
  }
  keys_.erase(begin, keys_.end());
}

DSPP_INLINE bool JsonChecker::comes_before(const Key& a, const Key& b) {
  if (!a.escaped && !b.escaped) return quoted(a).substr(1, a.bytes - 2) < quoted(b).substr(1, b.bytes - 2);
  Bytes of_a{a.begin + std::size_t{1}}, of_b{b.begin + std::size_t{1}};
  while (true) {
    const int byte_of_a = next_byte(of_a), byte_of_b = next_byte(of_b);
    if (byte_of_a != byte_of_b) return byte_of_a < byte_of_b;
    if (byte_of_a < 0) return false;
  }
}

DSPP_INLINE int JsonChecker::next_byte(Bytes& bytes) {
  if (bytes.given < bytes.escaped.size()) return static_cast<unsigned char>(bytes.escaped[bytes.given++]);
  const char c = text_[bytes.at];
  if (c == '"') return -1;
  ++bytes.at;
  if (c != '\\') return static_cast<unsigned char>(c);
  bytes.escaped.clear(), bytes.given = 1;
  at_ = bytes.at;
  read_escape(&bytes.escaped);
  bytes.at = at_;
  return static_cast<unsigned char>(bytes.escaped[0]);
}

DSPP_INLINE bool JsonChecker::take(char c) {
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

DSPP_INLINE void JsonChecker::expect(char c) {
  if (!take(c)) refuse(at_, at_ < text_.size() ? std::string("is not the '") + c + "' expected" : "is past the end");
}

DSPP_INLINE void JsonChecker::read_value(int depth) {
  if (depth > deepest) refuse(at_, "opens more than 64 levels");
  if (--values_left_ < 0) refuse(at_, "begins more values than are read");
  skip_space();
  switch (peek()) {
    case '{': return read_object(depth);
    case '[': return read_array(depth);
    case '"': return read_string(nullptr);
    case 't': return read_word("true");
    case 'f': return read_word("false");
    case 'n': return read_word("null");
    default: return read_number();
  }
}

DSPP_INLINE void JsonChecker::read_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) refuse(at_, "begins no value");
  at_ += word.size();
}

DSPP_INLINE void JsonChecker::read_array(int depth) {
  expect('[');
  skip_space();
  if (take(']')) return;
  do {
    read_value(depth + 1);
    skip_space();
  } while (take(','));
  expect(']');
}

DSPP_INLINE void JsonChecker::read_object(int depth) {
  const std::size_t outer_keys = open_keys_;
  read_members([&] {
    most_open_keys_ = std::max(most_open_keys_, ++open_keys_);
    read_value(depth + 1);
  });
  open_keys_ = outer_keys;
}

DSPP_INLINE std::size_t JsonChecker::digits() {
  const std::size_t start = at_;
  while (peek() >= '0' && peek() <= '9') ++at_;
  return at_ - start;
}

DSPP_INLINE void JsonChecker::read_number() {
  const std::size_t start = at_;
  take('-');
  const bool zero = peek() == '0';
  const std::size_t whole = digits();
  bool valid = whole > 0 && !(zero && whole > 1);
  if (take('.')) valid = valid && digits() > 0;
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (!take('+')) take('-');
    valid = valid && digits() > 0;
  }
  if (!valid) refuse(start, start < text_.size() ? "begins no value" : "is past the end");
  const char *first = text_.data() + start, *last = text_.data() + at_;
  double real = 0;
  if (std::from_chars(first, last, real).ec != std::errc()) refuse(start, "begins a number that no f64 holds");
}

DSPP_INLINE void JsonChecker::read_escape(std::string* out) {
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

DSPP_INLINE std::uint32_t JsonChecker::read_hex4() {
  std::uint32_t code = 0;
  const std::string_view hex = text_.substr(std::min(at_, text_.size()), 4);
  const auto end = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  if (hex.size() != 4 || end.ptr != hex.data() + 4) refuse(at_, "begins no four hexadecimal digits");
  at_ += 4;
  return code;
}

DSPP_INLINE void JsonChecker::append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  const auto follow = [&](int shift) { put(0x80u | ((code >> shift) & 0x3fu)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xc0u | (code >> 6)), follow(0);
  if (code < 0x10000) return put(0xe0u | (code >> 12)), follow(6), follow(0);
  put(0xf0u | (code >> 18)), follow(12), follow(6), follow(0);
}

DSPP_INLINE std::size_t json_string_end(std::string_view text, std::size_t at) {
  const std::size_t first = at + 1;
  for (std::size_t end = text.find('"', first); end != std::string_view::npos; end = text.find('"', end + 1)) {
    std::size_t escapes = 0;
    while (end - escapes > first && text[end - escapes - 1] == '\\') ++escapes;
    if (escapes % 2 == 0) return end + 1;
  }
  return text.size();
}

DSPP_INLINE std::size_t json_value_end(std::string_view text, std::size_t at) {
  const char first = text[at];
  if (first == '"') return json_string_end(text, at);
  if (first != '{' && first != '[') {
    const auto ends = [](char c) { return is_json_space(c) || c == ',' || c == ']' || c == '}'; };
    while (at < text.size() && !ends(text[at])) ++at;
    return at;
  }
  for (int open = 0; at < text.size();) {
    const char c = text[at];
    at = c == '"' ? json_string_end(text, at) : at + 1;
    if (c == '{' || c == '[') ++open;
    if ((c == '}' || c == ']') && --open == 0) break;
  }
  return at;
}

DSPP_INLINE std::string_view json_unquoted(std::string_view quoted, std::string& room) {
  const std::string_view plain = quoted.substr(1, quoted.size() - 2);
  if (plain.find('\\') == std::string_view::npos) return plain;
  JsonChecker(quoted, "", 1).read_string(&room);
  return room;
}

DSPP_INLINE void read_json_string(std::string_view quoted, std::string& out) {
  const std::string_view unquoted = json_unquoted(quoted, out);
  if (unquoted.data() != out.data()) out.assign(unquoted);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Size first_bad_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](std::size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u; };
    const auto follows = [&](std::size_t k) { return (byte(k) & 0xc0u) == 0x80u; };
    std::uint64_t eight = 0;
    if (i + 8 <= text.size()) std::memcpy(&eight, text.data() + i, 8);
    if (i + 8 <= text.size() && (eight & 0x8080808080808080u) == 0) {
      i += 8;
      continue;
    }
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const unsigned first = byte(0), second = byte(1);
    std::size_t length = 0;
    if (first >= 0xc2 && first <= 0xdf && follows(1)) length = 2;
    // neither overlong (e0, f0) nor a surrogate (ed) nor beyond U+10FFFF (f4)
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

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
