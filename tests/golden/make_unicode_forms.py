# SPDX-License-Identifier: Apache-2.0
"""Writes two headers of include/dspp/data: unicode_decompositions.hpp and bert_characters.hpp.

Usage: python make_unicode_forms.py        (tokenizers 0.23.3, any Python from 3.11 on)

What a code point becomes is asked of the `tokenizers` package, one by one, since its parts follow different versions of
Unicode: canonical forms those of 12.1, the classes of BertNormalizer older ones, lower case a newer one. Python's own
unicodedata says only which pairs and which combining classes to ask about.
"""

import pathlib
import unicodedata

from tokenizers import normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "include/dspp/data"
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFD, NFC, BERT_WORDS = normalizers.NFD(), normalizers.NFC(), pre_tokenizers.BertPreTokenizer()
HANGUL = range(0xAC00, 0xD7A4)
REMOVED, SPACE, MARK, PUNCTUATION = 1, 2, 4, 8
UNSAFE = 255

DECOMPOSITIONS = """// SPDX-License-Identifier: Apache-2.0
/// Canonical decompositions and combining classes of Unicode 12.1, as in `tokenizers` 0.23.3.
/// Written by tests/golden/make_unicode_forms.py; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include <dspp/base/config.hpp>

namespace dspp::data::detail {

/// 2^43 c + 2^22 a + 2 b + p for each code point c that becomes a and b, or a alone, by one step; p is 1 if a and b
/// are composed to c again. Ascending. Syllables of Hangul are left out.
std::span<const std::uint64_t> decompositions();

/// The combining class, or `joins_before` for a code point of class 0 that normal form C changes or may join with what
/// is before it.
///
/// Cost     ten comparisons
unsigned combining_class(char32_t code_point);
inline constexpr unsigned joins_before = %d;

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

// clang-format off
DSPP_INLINE std::span<const std::uint64_t> decompositions() {
  static constexpr std::uint64_t table[] = {
%s
  };
  return table;
}

DSPP_INLINE unsigned combining_class(char32_t code_point) {
  // where the class changes: 256 * the first code point of a range + its class
  static constexpr std::uint32_t ranges[] = {
%s
  };
// clang-format on
  const std::uint32_t wanted = static_cast<std::uint32_t>(code_point) * 256 + 255;
  std::size_t first = 0, count = std::size(ranges);
  while (count > 1) {
    const std::size_t half = count / 2;
    if (ranges[first + half] <= wanted) first += half;
    count -= half;
  }
  return ranges[first] & 255u;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data::detail
"""

BERT = """// SPDX-License-Identifier: Apache-2.0
/// What BertNormalizer and BertPreTokenizer of `tokenizers` 0.23.3 make of each code point.
/// Written by tests/golden/make_unicode_forms.py; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include <dspp/base/config.hpp>

namespace dspp::data::detail {

inline constexpr unsigned bert_removed = %d;      ///< by clean_text: control and format characters, private use, U+FFFD
inline constexpr unsigned bert_space = %d;        ///< white space
inline constexpr unsigned bert_mark = %d;         ///< an accent, which strip_accents removes
inline constexpr unsigned bert_punctuation = %d;  ///< a word of its own

/// The sum of the constants above that hold for the code point.
///
/// Cost     ten comparisons
unsigned bert_class(char32_t code_point);

/// The code point in lower case; that of U+0130, which has two, is U+0069, to be followed by U+0307.
///
/// Cost     eight comparisons
char32_t lower_case(char32_t code_point);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

// clang-format off
DSPP_INLINE unsigned bert_class(char32_t code_point) {
  // where the class changes: 16 * the first code point of a range + its class
  static constexpr std::uint32_t ranges[] = {
%s
  };
// clang-format on
  const std::uint32_t wanted = static_cast<std::uint32_t>(code_point) * 16 + 15;
  std::size_t first = 0, count = std::size(ranges);
  while (count > 1) {
    const std::size_t half = count / 2;
    if (ranges[first + half] <= wanted) first += half;
    count -= half;
  }
  return ranges[first] & 15u;
}

DSPP_INLINE char32_t lower_case(char32_t code_point) {
  struct Range {
    char32_t first, last, step;
    std::int32_t distance;
  };
  // every step-th code point from first to last, and how far its lower case is
  // clang-format off
  static constexpr Range ranges[] = {
%s
  };
  // clang-format on
  std::size_t at = 0, count = std::size(ranges);
  while (count > 1) {
    const std::size_t half = count / 2;
    if (ranges[at + half].first <= code_point) at += half;
    count -= half;
  }
  const Range& range = ranges[at];
  const bool inside = code_point >= range.first && code_point <= range.last;
  if (!inside || (code_point - range.first) %% range.step != 0) return code_point;
  return static_cast<char32_t>(static_cast<std::int32_t>(code_point) + range.distance);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data::detail
"""


def lines_of(words: list[str], indent: str = "    ") -> str:
    lines, line = [], indent[:-1]
    for word in words:
        if len(line) + 2 + len(word) > 119:
            lines.append(line)
            line = indent[:-1]
        line += " " + word + ","
    return "\n".join(lines + [line])


def changes(values: dict[int, int], base: int) -> list[str]:
    """Where the value changes, surrogates being like what is before them."""
    found, before = [], None
    for c in ALL:
        if values.get(c, 0) != before:
            before = values.get(c, 0)
            found.append(str(base * c + before))
    return found


def combining_classes() -> dict[int, int]:
    """Two marks of different classes are put in order, two of one class are not."""
    classes = {}
    some = {unicodedata.combining(chr(c)): chr(c) for c in (0x0345, 0x0334, 0x0301)}
    assert set(some) == {240, 1, 230}
    for c in ALL:
        guess = unicodedata.combining(chr(c))
        moves = NFD.normalize_str("a\u0345" + chr(c)) != "a\u0345" + NFD.normalize_str(chr(c)) or c == 0x345
        if moves and NFD.normalize_str(chr(c)) == chr(c):
            assert guess != 0, hex(c)
            classes[c] = guess
    of = {}
    for c, guess in classes.items():
        of.setdefault(guess, chr(c))
    for c, guess in classes.items():
        for other, mark in of.items():
            if mark == chr(c):
                continue
            pair = NFD.normalize_str("a" + mark + chr(c))
            assert pair == "a" + (chr(c) + mark if guess < other else mark + chr(c)), (hex(c), guess, other)
    return classes


def decompositions() -> dict[int, tuple[int, int, int]]:
    found = {}
    for c in ALL:
        if c in HANGUL or NFD.normalize_str(chr(c)) == chr(c):
            continue
        parts = [int(part, 16) for part in unicodedata.decomposition(chr(c)).split()]
        assert NFD.normalize_str("".join(map(chr, parts))) == NFD.normalize_str(chr(c)), hex(c)
        composes = len(parts) == 2 and NFC.normalize_str("".join(map(chr, parts))) == chr(c)
        found[c] = (parts[0], parts[1] if len(parts) == 2 else 0, int(composes))
    for c in ALL:  # pairs that a newer Unicode composes
        parts = unicodedata.decomposition(chr(c)).split()
        if c not in found and c not in HANGUL and len(parts) == 2 and "<" not in parts[0]:
            pair = "".join(chr(int(part, 16)) for part in parts)
            if NFC.normalize_str(pair) != pair:
                raise SystemExit(f"U+{c:04X} is composed, but not decomposed")
    return found


def write_decompositions() -> None:
    classes, pairs = combining_classes(), decompositions()
    for c in ALL:
        assert (NFC.normalize_str(chr(c)) != chr(c)) <= (c in pairs), hex(c)
    seconds = {b for a, b, composes in pairs.values() if composes}
    values = dict(classes)
    unsafe = [c for c in ALL if NFC.normalize_str(chr(c)) != chr(c)] + sorted(seconds)
    for c in unsafe + [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]:
        values.setdefault(c, UNSAFE)
    for c in pairs:  # what is safe begins with what is safe
        first = ord(NFD.normalize_str(chr(c))[0])
        assert c in values or first not in values, hex(c)
    entries = sorted(c << 43 | a << 22 | b << 1 | composes for c, (a, b, composes) in pairs.items())
    text = DECOMPOSITIONS % (UNSAFE, lines_of([hex(entry) for entry in entries]), lines_of(changes(values, 256)))
    (FOLDER / "unicode_decompositions.hpp").write_text(text)


def bert_values() -> dict[int, int]:
    clean, accents = (normalizers.BertNormalizer(clean_text=field == 0, handle_chinese_chars=False,
                                                 strip_accents=field == 1, lowercase=False) for field in (0, 1))
    values = {}
    for c in ALL:
        pieces = [piece for piece, _ in BERT_WORDS.pre_tokenize_str("a" + chr(c) + "b")]
        cleaned = clean.normalize_str("a" + chr(c) + "b")
        value = REMOVED if cleaned == "ab" else 0
        value |= SPACE if pieces == ["a", "b"] else 0
        assert cleaned in ("ab", "a" + (" " if value & SPACE else chr(c)) + "b"), hex(c)
        stripped = NFD.normalize_str(chr(c)) == chr(c) and accents.normalize_str("a" + chr(c)) == "a"
        value |= MARK if stripped else 0
        value |= PUNCTUATION if pieces == ["a", chr(c), "b"] else 0
        values[c] = value
    for c in ALL:
        kept = "".join(x for x in NFD.normalize_str(chr(c)) if not values[ord(x)] & MARK)
        assert accents.normalize_str(chr(c)) == kept, hex(c)
    return values


def lower_ranges() -> list[list[int]]:
    lower = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False,
                                       lowercase=True)
    ranges = []
    for c in ALL:
        becomes = lower.normalize_str(chr(c))
        if becomes == chr(c):
            continue
        assert len(becomes) == 1 or (c == 0x130 and becomes == "i\u0307"), hex(c)
        distance, last = ord(becomes[0]) - c, ranges[-1] if ranges else None
        if last and last[3] == distance and c - last[1] in (1, 2) and (last[0] == last[1] or c - last[1] == last[2]):
            last[1], last[2] = c, c - last[1]
        else:
            ranges.append([c, c, 1, distance])
    return ranges


def write_bert() -> None:
    ranges = ["{%d, %d, %d, %d}" % tuple(r) for r in lower_ranges()]
    text = BERT % (REMOVED, SPACE, MARK, PUNCTUATION, lines_of(changes(bert_values(), 16)), lines_of(ranges))
    (FOLDER / "bert_characters.hpp").write_text(text)


if __name__ == "__main__":
    write_decompositions()
    write_bert()
