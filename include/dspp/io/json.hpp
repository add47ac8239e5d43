// SPDX-License-Identifier: Apache-2.0
/// A strict reader of JSON (RFC 8259).
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <dspp/base/types.hpp>
#include <dspp/io/json_checker.hpp>
#include <dspp/io/json_text.hpp>

namespace dspp::io {

class JsonItems;

/// A value of a text that parse_json accepted. Numbers and strings are stored here; lists and objects stay in the text,
/// which must outlive the value.
struct Json {
  enum class Kind { null, boolean, integer, real, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  Size integer = 0;  ///< of a number without fraction and exponent that fits 64 bits
  double real = 0;   ///< of any number
  std::string string;
  std::string key;        ///< of an object's member, its name
  std::string_view text;  ///< from the value's first byte to its last

  Json() = default;
  /// Reads the text of one valid value: another value's `text`, or a copy of it.
  explicit Json(std::string_view valid) { read(valid); }
  template <std::same_as<std::string> Temporary>
  explicit Json(Temporary&& valid) = delete;

  bool is(Kind k) const { return kind == k; }

  /// The items of a list or the members of an object, in the order of the text; none for other values.
  ///
  ///   for (const Json& item : list.items()) ...
  ///
  /// Cost     one pass over the text
  /// Memory   one item at a time: its key and its string
  JsonItems items() const;
  /// The number of items or members. Cost: one pass over the text.
  Size count() const;

  /// The member of that name. Cost: one pass over the text up to the member's end.
  std::optional<Json> find(std::string_view name) const;

  /// Replaces this value by that valid text; the key stays.
  void read(std::string_view valid);
};

/// Reads one value; only white space may follow. Rejects bad UTF-8, duplicate keys, lone surrogates, more than 64
/// levels, more than `most_values`, numbers that no f64 holds, comments, trailing commas, a byte order mark, more than
/// 2 GiB. `who` begins the error sentence: "the header of 'model.safetensors'". The text must outlive the value.
///
/// Memory   8 bytes for each key of the objects open at one place of the text, while keys are checked: at most 1.6
///          times the text. None for a rejected text, except for a duplicate key, which is checked last
/// Throws   Error(file), with the first wrong byte
Json parse_json(std::string_view text, const std::string& who, Size most_values = Size{1} << 23);
template <std::same_as<std::string> Temporary>
Json parse_json(Temporary&& text, const std::string& who, Size most_values = 0) = delete;

/// Reads an object as parse_json does, member by member: begin(members), then f(member) for each. The caller checks
/// duplicate keys of the object itself.
///
/// Memory   of parse_json, for one member at a time; each has at most `most_values`
/// Throws   Error(file), also if the text is another value
template <class Begin, class F>
void for_each_json_member(std::string_view text, const std::string& who, Size most_values, Begin begin, F f);

/// Iterates over the items of a list or the members of an object.
class JsonItems {
 public:
  class Iterator;

  /// Reads the value's text, which must outlive the iterators.
  explicit JsonItems(std::string_view text) : text_(text) {}

  Iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  std::string_view text_;
};

/// A value in a few words for error sentences: 3, "gelu", true, null, "a list", "an object".
std::string json_in_words(const Json& value);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Iterates over the items of a list and the members of an object without parsing them.
class JsonCursor {
 public:
  JsonCursor() = default;
  explicit JsonCursor(std::string_view text);

  /// False at the end.
  bool next();

  std::string_view key, value;  ///< as in the text

 private:
  void skip();
  std::string_view take();

  std::string_view rest_;
  bool object_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE JsonCursor::JsonCursor(std::string_view text) : object_(text.starts_with('{')) {
  if (object_ || text.starts_with('[')) rest_ = text.substr(1);
}

DSPP_INLINE bool JsonCursor::next() {
  skip();
  if (rest_.empty() || rest_[0] == ']' || rest_[0] == '}') return false;
  if (object_) {
    key = take();
    skip();
  }
  value = take();
  return true;
}

DSPP_INLINE void JsonCursor::skip() {
  const auto separates = [](char c) { return is_json_space(c) || c == ',' || c == ':'; };
  while (!rest_.empty() && separates(rest_[0])) rest_.remove_prefix(1);
}

DSPP_INLINE std::string_view JsonCursor::take() {
  const std::string_view taken(rest_.data(), json_value_end(rest_, 0));
  rest_.remove_prefix(taken.size());
  return taken;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

class JsonItems::Iterator {
 public:
  using value_type = Json;
  using difference_type = std::ptrdiff_t;

  Iterator() = default;
  explicit Iterator(std::string_view text) : cursor_(text) { ++*this; }

  const Json& operator*() const { return item_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& i, std::default_sentinel_t) { return i.ended_; }

 private:
  detail::JsonCursor cursor_;
  Json item_;
  bool ended_ = false;
};

template <class Begin, class F>
void for_each_json_member(std::string_view text, const std::string& who, Size most_values, Begin begin, F f) {
  detail::JsonChecker checker(text, who, most_values);
  begin(checker.check_members());
  for (const Json& member : JsonItems(text.substr(text.find('{')))) {
    checker.check_keys(member.text);
    f(member);
  }
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string json_in_words(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null: return "null";
    case Json::Kind::boolean: return value.boolean ? "true" : "false";
    case Json::Kind::integer: return std::to_string(value.integer);
    case Json::Kind::real: return json_real(value.real);
    case Json::Kind::array: return "a list";
    case Json::Kind::object: return "an object";
    case Json::Kind::string: break;
  }
  return json_name(value.string, 60);
}

DSPP_INLINE JsonItems::Iterator JsonItems::begin() const {
  return Iterator(text_);
}

DSPP_INLINE JsonItems::Iterator& JsonItems::Iterator::operator++() {
  ended_ = !cursor_.next();
  if (ended_) return *this;
  if (!cursor_.key.empty()) detail::read_json_string(cursor_.key, item_.key);
  item_.read(cursor_.value);
  return *this;
}

DSPP_INLINE void Json::read(std::string_view valid) {
  boolean = false, integer = 0, real = 0, string.clear(), text = valid;
  switch (valid[0]) {
    case '{': kind = Kind::object; return;
    case '[': kind = Kind::array; return;
    case '"': kind = Kind::string; return detail::read_json_string(valid, string);
    case 't':
    case 'f': kind = Kind::boolean, boolean = valid[0] == 't'; return;
    case 'n': kind = Kind::null; return;
    default: break;
  }
  const char *first = valid.data(), *last = first + valid.size();
  const auto [end, error] = std::from_chars(first, last, integer);
  kind = end == last && error == std::errc() ? Kind::integer : Kind::real;
  if (is(Kind::integer)) return void(real = static_cast<double>(integer));
  integer = 0;
  std::from_chars(first, last, real);
}

DSPP_INLINE JsonItems Json::items() const {
  return JsonItems(text);
}

DSPP_INLINE Size Json::count() const {
  Size count = 0;
  for (detail::JsonCursor cursor(text); cursor.next();) ++count;
  return count;
}

DSPP_INLINE std::optional<Json> Json::find(std::string_view name) const {
  std::string room;
  for (detail::JsonCursor cursor(text); cursor.next();)
    if (!cursor.key.empty() && detail::json_unquoted(cursor.key, room) == name) return Json(cursor.value);
  return std::nullopt;
}

DSPP_INLINE Json parse_json(std::string_view text, const std::string& who, Size most_values) {
  return Json(detail::JsonChecker(text, who, most_values).check_value());
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
