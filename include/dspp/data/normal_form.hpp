// SPDX-License-Identifier: Apache-2.0
/// Canonical decomposition and normal form C of Unicode 12.1, as in the `tokenizers` package.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/printable.hpp>
#include <dspp/data/unicode_decompositions.hpp>

namespace dspp::data {

/// Appends a code point in UTF-8.
void append_utf8(std::string& text, char32_t code_point);

/// Calls f(code point) for each of the code points that this one becomes by canonical decomposition; itself if it has
/// none.
void decompose(char32_t code_point, auto&& f);

/// The code point that these two are composed to, or 0.
char32_t composed(char32_t first, char32_t second);

/// Appends the text in normal form C: an accent and the letter before it become one code point where there is one. A
/// byte that is not part of valid UTF-8 stays and joins with nothing.
///
/// Cost     one comparison a byte up to U+02FF, one look-up a character beyond
/// Memory   8 bytes for each code point of the longest run of accents
/// Source   The Unicode Standard, annex 15
void append_nfc(std::string_view text, std::string& out);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

// syllables of Hangul are computed: a leading consonant, a vowel, and a trailing consonant or none
inline constexpr char32_t hangul_syllables = 0xac00, hangul_leading = 0x1100, hangul_vowels = 0x1161;
inline constexpr char32_t hangul_trailing = 0x11a7, hangul_leading_count = 19, hangul_vowel_count = 21;
inline constexpr char32_t hangul_trailing_count = 28;
inline constexpr char32_t hangul_count = hangul_leading_count * hangul_vowel_count * hangul_trailing_count;

constexpr bool is_hangul_syllable(char32_t c) {
  return c >= hangul_syllables && c < hangul_syllables + hangul_count;
}

/// What one step of decomposition gives; {0, 0} if there is none.
std::array<char32_t, 2> decomposition_step(char32_t code_point);

/// Code points with their combining classes, put in order and composed.
class NormalRun {
 public:
  void add(char32_t code_point) {
    decompose(code_point, [this](char32_t part) { add_part(part); });
  }
  /// Appends the composed code points to the text; the run is empty then.
  void flush(std::string& out);

 private:
  struct Part {
    char32_t code_point;
    unsigned order;
  };
  void add_part(char32_t code_point);

  std::vector<Part> parts_;
};

}  // namespace detail

void decompose(char32_t code_point, auto&& f) {
  if (detail::is_hangul_syllable(code_point)) {
    const char32_t at = code_point - detail::hangul_syllables, trailing = at % detail::hangul_trailing_count;
    f(detail::hangul_leading + at / (detail::hangul_vowel_count * detail::hangul_trailing_count));
    f(detail::hangul_vowels + at / detail::hangul_trailing_count % detail::hangul_vowel_count);
    if (trailing != 0) f(detail::hangul_trailing + trailing);
    return;
  }
  std::array<char32_t, 4> after{};  // what follows the first part, the last one first
  std::size_t count = 0;
  for (auto step = detail::decomposition_step(code_point); step[0] != 0;
       step = detail::decomposition_step(code_point)) {
    code_point = step[0];
    if (step[1] != 0) after[count++] = step[1];
  }
  f(code_point);
  while (count > 0) f(after[--count]);
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  if (c < 0x10000) return put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
}

DSPP_INLINE char32_t composed(char32_t first, char32_t second) {
  using namespace detail;
  if (first >= hangul_leading && first < hangul_leading + hangul_leading_count && second >= hangul_vowels &&
      second < hangul_vowels + hangul_vowel_count)
    return hangul_syllables +
           ((first - hangul_leading) * hangul_vowel_count + second - hangul_vowels) * hangul_trailing_count;
  if (is_hangul_syllable(first) && (first - hangul_syllables) % hangul_trailing_count == 0 &&
      second > hangul_trailing && second < hangul_trailing + hangul_trailing_count)
    return first + second - hangul_trailing;
  constexpr std::uint64_t pair_bits = (std::uint64_t{1} << 43) - 1;
  static const std::vector<std::uint64_t>& by_pair = []() -> const auto& {  // until the process ends
    auto& all = *new std::vector<std::uint64_t>;
    for (const std::uint64_t entry : decompositions())
      if (entry & 1u) all.push_back((entry & pair_bits) >> 1 << 21 | entry >> 43);
    std::sort(all.begin(), all.end());
    return all;
  }
  ();
  const std::uint64_t wanted = std::uint64_t{first} << 42 | std::uint64_t{second} << 21;
  const auto at = std::lower_bound(by_pair.begin(), by_pair.end(), wanted);
  if (at == by_pair.end() || *at >> 21 != wanted >> 21) return 0;
  return static_cast<char32_t>(*at & 0x1fffff);
}

DSPP_INLINE void append_nfc(std::string_view text, std::string& out) {
  detail::NormalRun run;
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xcc) {  // all code points below U+0300 stay
      ++at;
      continue;
    }
    auto c = dspp::detail::first_character(text.substr(at));
    if (c.code < 0 || detail::combining_class(static_cast<char32_t>(c.code)) == 0) {
      at += c.code < 0 ? 1 : c.bytes;
      continue;
    }
    std::size_t begin = at;  // of the character before this one
    if (begin > copied) --begin;
    while (begin > copied && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0u) == 0x80u) --begin;
    out.append(text.substr(copied, begin - copied));
    std::size_t end = begin;
    while (end < text.size()) {
      c = dspp::detail::first_character(text.substr(end));
      const bool joins = c.code >= 0 && detail::combining_class(static_cast<char32_t>(c.code)) != 0;
      if (end > at && !joins) break;
      if (c.code >= 0) {
        run.add(static_cast<char32_t>(c.code));
      } else {
        run.flush(out);
        out += text[end];
      }
      end += c.code < 0 ? 1 : c.bytes;
    }
    run.flush(out);
    copied = at = end;
  }
  out.append(text.substr(copied));
}

namespace detail {

DSPP_INLINE std::array<char32_t, 2> decomposition_step(char32_t code_point) {
  const auto all = decompositions();
  const auto at = std::lower_bound(all.begin(), all.end(), std::uint64_t{code_point} << 43);
  if (at == all.end() || *at >> 43 != code_point) return {};
  return {static_cast<char32_t>(*at >> 22 & 0x1fffff), static_cast<char32_t>(*at >> 1 & 0x1fffff)};
}

DSPP_INLINE void NormalRun::add_part(char32_t code_point) {
  const unsigned order = combining_class(code_point);
  parts_.push_back({code_point, order == joins_before ? 0 : order});
}

DSPP_INLINE void NormalRun::flush(std::string& out) {
  for (auto begin = parts_.begin(); begin != parts_.end();) {
    const auto end = std::find_if(begin, parts_.end(), [](const Part& part) { return part.order == 0; });
    std::stable_sort(begin, end, [](const Part& a, const Part& b) { return a.order < b.order; });
    begin = end == parts_.end() ? end : end + 1;
  }
  std::size_t kept = 0, starter = parts_.size();  // a part joins the last starter if none between has its order or more
  unsigned before = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part part = parts_[i];
    if (starter < kept && (before == 0 || before < part.order))
      if (const char32_t both = composed(parts_[starter].code_point, part.code_point)) {
        parts_[starter].code_point = both;
        continue;
      }
    if (part.order == 0) starter = kept;
    before = part.order;
    parts_[kept++] = part;
  }
  for (std::size_t i = 0; i < kept; ++i) append_utf8(out, parts_[i].code_point);
  parts_.clear();
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
