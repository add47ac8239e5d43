// SPDX-License-Identifier: Apache-2.0
/// Text as BERT reads it: normalized, and cut at white space and punctuation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/printable.hpp>
#include <dspp/data/bert_characters.hpp>
#include <dspp/data/normal_form.hpp>

namespace dspp::data {

/// BertNormalizer of a tokenizer.json. Each character is cleaned (control characters are removed, white space becomes
/// U+0020), surrounded by spaces if it is Chinese, decomposed and freed of accents, and written in lower case, as the
/// flags say. A byte that is not part of valid UTF-8 is read as U+FFFD, which clean_text removes.
///
/// Source   Devlin et al., BERT (2019), its code; classes of characters as in `tokenizers` 0.23.3
struct BertNormalizer {
  bool clean_text = true, chinese_characters = true, strip_accents = true, lower_case = true;

  /// Appends the normalized text.
  void operator()(std::string_view text, std::string& out) const;

  friend bool operator==(const BertNormalizer&, const BertNormalizer&) = default;
};

/// The begin and the end of the first word at or after byte `at`: a punctuation character, or others up to the next one
/// or white space. Both are the text's size if there is none.
std::pair<std::size_t, std::size_t> bert_word(std::string_view text, std::size_t at);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

constexpr bool is_bert_chinese(char32_t c) {
  constexpr char32_t ranges[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
                                    {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  for (const auto& range : ranges)
    if (c >= range[0] && c <= range[1]) return true;
  return false;
}

constexpr bool is_ascii_letter_or_digit(unsigned char c) {
  return static_cast<unsigned char>((c | 0x20) - 'a') < 26 || static_cast<unsigned char>(c - '0') < 10;
}

/// Normalizes one text, character by character.
class BertWriter {
 public:
  BertWriter(const BertNormalizer& how, std::string& out) : how_(how), out_(out) {}

  void add(char32_t c);
  void flush();

 private:
  struct Mark {
    char32_t code_point;
    unsigned order;
  };
  void add_clean(char32_t c);
  void write(char32_t c);

  const BertNormalizer how_;
  std::string& out_;
  std::vector<Mark> marks_;  // since the last character of combining class 0
};

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void BertNormalizer::operator()(std::string_view text, std::string& out) const {
  detail::BertWriter writer(*this, out);
  for (std::size_t at = 0; at < text.size();) {
    const auto c = dspp::detail::first_character(text.substr(at));
    writer.add(c.code < 0 ? char32_t{0xfffd} : static_cast<char32_t>(c.code));
    at += c.bytes;
  }
  writer.flush();
}

DSPP_INLINE std::pair<std::size_t, std::size_t> bert_word(std::string_view text, std::size_t at) {
  std::size_t begin = text.size();
  for (std::size_t next = at; at < text.size(); at = next) {
    next = at + 1;
    if (detail::is_ascii_letter_or_digit(static_cast<unsigned char>(text[at]))) {
      begin = std::min(begin, at);
      continue;
    }
    const auto c = dspp::detail::first_character(text.substr(at));
    const unsigned kind = c.code < 0 ? 0 : detail::bert_class(static_cast<char32_t>(c.code));
    next = at + c.bytes;
    const bool ends = (kind & (detail::bert_space | detail::bert_punctuation)) != 0;
    if (ends && begin < at) return {begin, at};
    if (kind & detail::bert_punctuation) return {at, next};
    if (!ends) begin = std::min(begin, at);
  }
  return {begin, text.size()};
}

namespace detail {

DSPP_INLINE void BertWriter::add(char32_t c) {
  if (c < 0x80 && is_ascii_letter_or_digit(static_cast<unsigned char>(c))) {
    flush();
    out_ += static_cast<char>(how_.lower_case && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    return;
  }
  if (how_.clean_text) {
    const unsigned kind = bert_class(c);
    if (kind & bert_removed) return;
    if (kind & bert_space) c = ' ';
  }
  const bool chinese = how_.chinese_characters && is_bert_chinese(c);
  if (chinese) add_clean(' ');
  add_clean(c);
  if (chinese) add_clean(' ');
}

DSPP_INLINE void BertWriter::add_clean(char32_t c) {
  if (!how_.strip_accents) return write(c);
  decompose(c, [this](char32_t part) {
    const unsigned order = combining_class(part);
    const bool is_starter = order == 0 || order == joins_before;
    if (is_starter) flush();
    if (bert_class(part) & bert_mark) return;
    if (is_starter)
      write(part);
    else
      marks_.push_back({part, order});
  });
}

DSPP_INLINE void BertWriter::write(char32_t c) {
  append_utf8(out_, how_.lower_case ? data::detail::lower_case(c) : c);
  if (how_.lower_case && c == 0x130) append_utf8(out_, 0x307);
}

DSPP_INLINE void BertWriter::flush() {
  if (marks_.empty()) return;
  std::stable_sort(marks_.begin(), marks_.end(), [](const Mark& a, const Mark& b) { return a.order < b.order; });
  for (const Mark mark : marks_) write(mark.code_point);
  marks_.clear();
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
