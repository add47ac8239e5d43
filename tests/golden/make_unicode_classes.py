# SPDX-License-Identifier: Apache-2.0
"""Writes include/dspp/data/unicode_classes.hpp: which code points are letters, numbers and white space in Unicode 16.0.0.

Usage: python make_unicode_classes.py        with regex==2024.11.6, whose tables are Unicode 16.0.0, and `tokenizers`.
Before it writes, it asks the ByteLevel pre-tokenizer of `tokenizers` about every code point (0.23.3 agrees on all).
"""

import pathlib

import regex
from tokenizers import pre_tokenizers

HEADER = pathlib.Path(__file__).resolve().parents[2] / "include/dspp/data/unicode_classes.hpp"
LETTER, NUMBER, SPACE = regex.compile(r"\p{L}"), regex.compile(r"\p{N}"), regex.compile(r"\s")
OTHER_CLASS, LETTER_CLASS, NUMBER_CLASS, SPACE_CLASS = range(4)

BEGIN = """// SPDX-License-Identifier: Apache-2.0
/// Letters (general category L), numbers (N) and white space (White_Space) of Unicode 16.0.0.
/// Written by tests/golden/make_unicode_classes.py; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace dspp {

enum class UnicodeClass : unsigned char { other, letter, number, space };

/// The class of a code point; what is not assigned is `other`.
///
/// Cost     eleven comparisons
constexpr UnicodeClass unicode_class(char32_t code_point);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Where the class changes: 4 * the first code point of a range + its class, ascending.
// clang-format off
inline constexpr std::uint32_t unicode_ranges[] = {
"""
END = """};
// clang-format on

}  // namespace detail

constexpr UnicodeClass unicode_class(char32_t code_point) {
  const std::uint32_t wanted = static_cast<std::uint32_t>(code_point) * 4 + 3;
  std::size_t first = 0, count = std::size(detail::unicode_ranges);  // the last range that begins at or before it
  while (count > 1) {
    const std::size_t half = count / 2;
    if (detail::unicode_ranges[first + half] <= wanted) first += half;
    count -= half;
  }
  return static_cast<UnicodeClass>(detail::unicode_ranges[first] & 3u);
}

}  // namespace dspp
"""


def class_of(character: str) -> int:
    if LETTER.match(character):
        return LETTER_CLASS
    if NUMBER.match(character):
        return NUMBER_CLASS
    return SPACE_CLASS if SPACE.match(character) else OTHER_CLASS


def class_in_tokenizers(character: str, pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False)) -> int:
    """A run of one class is one word, so the class is that of the neighbour it is not cut from."""
    for neighbour, its_class in (("a", LETTER_CLASS), ("1", NUMBER_CLASS), ("!", OTHER_CLASS)):
        if len(pre_tokenizer.pre_tokenize_str(neighbour + character)) == 1:
            return its_class
    return SPACE_CLASS


def main() -> None:
    ranges, before = [], -1
    for code_point in range(0x110000):
        surrogate = 0xD800 <= code_point < 0xE000
        now = OTHER_CLASS if surrogate else class_of(chr(code_point))
        if not surrogate and now != class_in_tokenizers(chr(code_point)):
            raise SystemExit(f"U+{code_point:04X} is of another class in `tokenizers`")
        if now != before:
            ranges.append(f"{4 * code_point + now},")
        before = now
    lines, line = [], "   "
    for word in ranges:
        if len(line) + 1 + len(word) > 119:
            lines.append(line)
            line = "   "
        line += " " + word
    HEADER.write_text(BEGIN + "\n".join(lines + [line]) + "\n" + END)


if __name__ == "__main__":
    main()
