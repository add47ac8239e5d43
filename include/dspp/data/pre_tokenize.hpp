// SPDX-License-Identifier: Apache-2.0
/// Text cut into words as GPT-2, Llama 3 and Qwen do, before pairs are merged within each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <dspp/data/unicode_classes.hpp>

namespace dspp::data {

/// The end of the word that begins at byte `begin`, which must be inside the text. The words are the matches of
///
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// with the classes of Unicode 16.0.0: a contraction; or letters, or numbers, or others, after at most one space; or
/// white space, less its last character if a word follows. Together they are the whole text. A byte that is not part
/// of valid UTF-8 is one character that is neither letter, number nor space.
///
/// Source   Radford et al., Language models are unsupervised multitask learners (2019), section 2.2, and its code
std::size_t word_end(std::string_view text, std::size_t begin);

/// The same as Llama 3 does, with at most three digits in a word, and Qwen 2, with one:
///
///   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
///   |\s*[\r\n]+|\s+(?!\S)|\s+
///
/// A contraction in either case, where U+017F is an s; letters after at most one other character; digits; others after
/// at most one space and with the line ends behind them; white space up to its last line end, or less its last
/// character if a word follows.
///
/// Source   the pre_tokenizer of both models' tokenizer.json
std::size_t llama_word_end(std::string_view text, std::size_t begin, int most_digits);

/// The end of the word that begins at byte `begin` and goes on to the next `mark`.
std::size_t marked_word_end(std::string_view text, std::size_t begin, std::string_view mark);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

struct ClassedCharacter {
  UnicodeClass kind = UnicodeClass::other;
  std::size_t bytes = 1;
};

/// A character of several bytes, or one invalid byte. Overlong forms, surrogates and code points beyond U+10FFFF are
/// invalid.
ClassedCharacter long_character_at(std::string_view text, std::size_t at);
ClassedCharacter character_at(std::string_view text, std::size_t at);

/// The end of the characters of one class from `at` on.
std::size_t run_end(std::string_view text, std::size_t at, UnicodeClass kind);

/// The length in bytes of a contraction at the start of the text, or 0.
std::size_t contraction_bytes(std::string_view text);
/// The same in either case.
std::size_t folded_contraction_bytes(std::string_view text);

/// The end of a word of white space, which begins at byte `begin`, if nothing else begins it.
std::size_t space_end(std::string_view text, std::size_t begin);

constexpr bool is_line_end(char c) {
  return c == '\r' || c == '\n';
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE ClassedCharacter long_character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) {
    return at + k < text.size() ? static_cast<unsigned char>(text[at + k]) : char32_t{0};
  };
  const char32_t first = byte(0);
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return {};
  char32_t code_point = first & (0x7fu >> bytes);
  for (std::size_t k = 1; k < bytes; ++k) {
    if ((byte(k) & 0xc0u) != 0x80u) return {};
    code_point = code_point << 6 | (byte(k) & 0x3fu);
  }
  if (bytes == 3 && (code_point < 0x800 || (code_point >= 0xd800 && code_point < 0xe000))) return {};
  if (bytes == 4 && (code_point < 0x10000 || code_point > 0x10ffff)) return {};
  return {unicode_class(code_point), bytes};
}

DSPP_INLINE ClassedCharacter character_at(std::string_view text, std::size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  if (c >= 0x80) return long_character_at(text, at);
  if (static_cast<unsigned char>((c | 0x20) - 'a') < 26) return {UnicodeClass::letter, 1};
  if (static_cast<unsigned char>(c - '0') < 10) return {UnicodeClass::number, 1};
  return {c == ' ' || (c >= '\t' && c <= '\r') ? UnicodeClass::space : UnicodeClass::other, 1};
}

DSPP_INLINE std::size_t run_end(std::string_view text, std::size_t at, UnicodeClass kind) {
  while (at < text.size()) {
    const ClassedCharacter c = character_at(text, at);
    if (c.kind != kind) break;
    at += c.bytes;
  }
  return at;
}

DSPP_INLINE std::size_t contraction_bytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char c = text[1];
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

DSPP_INLINE std::size_t folded_contraction_bytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto lower = [&](std::size_t i) { return i < text.size() ? static_cast<char>(text[i] | 0x20) : '\0'; };
  if (text[1] == '\xc5') return text.substr(1, 2) == "\xc5\xbf" ? 3 : 0;
  const bool is_letter = static_cast<unsigned char>(lower(1) - 'a') < 26;
  if (!is_letter) return 0;
  const char small[] = {'\'', lower(1), static_cast<unsigned char>(lower(2) - 'a') < 26 ? lower(2) : '\0'};
  return contraction_bytes(std::string_view(small, sizeof small));
}

DSPP_INLINE std::size_t space_end(std::string_view text, std::size_t begin) {
  std::size_t last = begin, end = begin;  // of the white space: its last character, and its end
  while (end < text.size()) {
    const ClassedCharacter c = character_at(text, end);
    if (c.kind != UnicodeClass::space) break;
    last = end;
    end += c.bytes;
  }
  return end == text.size() || last == begin ? end : last;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::size_t word_end(std::string_view text, std::size_t begin) {
  if (const std::size_t bytes = detail::contraction_bytes(text.substr(begin))) return begin + bytes;
  const detail::ClassedCharacter first = detail::character_at(text, begin);
  if (first.kind != UnicodeClass::space) return detail::run_end(text, begin + first.bytes, first.kind);
  if (text[begin] == ' ' && begin + 1 < text.size()) {
    const detail::ClassedCharacter second = detail::character_at(text, begin + 1);
    if (second.kind != UnicodeClass::space) return detail::run_end(text, begin + 1 + second.bytes, second.kind);
  }
  return detail::space_end(text, begin);
}

DSPP_INLINE std::size_t llama_word_end(std::string_view text, std::size_t begin, int most_digits) {
  if (const std::size_t bytes = detail::folded_contraction_bytes(text.substr(begin))) return begin + bytes;
  const detail::ClassedCharacter first = detail::character_at(text, begin);
  std::size_t end = begin + first.bytes;
  if (first.kind == UnicodeClass::letter) return detail::run_end(text, end, UnicodeClass::letter);
  if (first.kind == UnicodeClass::number) {
    for (int digits = 1; digits < most_digits && end < text.size(); ++digits) {
      const detail::ClassedCharacter c = detail::character_at(text, end);
      if (c.kind != UnicodeClass::number) break;
      end += c.bytes;
    }
    return end;
  }
  bool others = first.kind == UnicodeClass::other;
  if (end < text.size() && !detail::is_line_end(text[begin])) {
    const detail::ClassedCharacter second = detail::character_at(text, end);
    if (second.kind == UnicodeClass::letter) return detail::run_end(text, end + second.bytes, UnicodeClass::letter);
    others = others || (text[begin] == ' ' && second.kind == UnicodeClass::other);
  }
  if (others) {
    end = detail::run_end(text, end, UnicodeClass::other);
    while (end < text.size() && detail::is_line_end(text[end])) ++end;
    return end;
  }
  std::size_t line_end = begin;  // behind the last one of the white space
  for (end = begin; end < text.size();) {
    const detail::ClassedCharacter c = detail::character_at(text, end);
    if (c.kind != UnicodeClass::space) break;
    end += c.bytes;
    if (detail::is_line_end(text[end - 1])) line_end = end;
  }
  return line_end > begin ? line_end : detail::space_end(text, begin);
}

DSPP_INLINE std::size_t marked_word_end(std::string_view text, std::size_t begin, std::string_view mark) {
  return std::min(text.find(mark, begin + 1), text.size());
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
