// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <dspp/data/pre_tokenize.hpp>

using namespace dspp;

namespace {

/// The words with bars between them.
std::string cut(std::string_view text, const auto& word_end) {
  std::string all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = word_end(text, begin);
    REQUIRE(end > begin);
    REQUIRE(end <= text.size());
    all += (begin ? "|" : "") + std::string(text.substr(begin, end - begin));
    begin = end;
  }
  return all;
}

std::string cut(std::string_view text) {
  return cut(text, data::word_end);
}

/// As Llama 3.
std::string cut3(std::string_view text) {
  return cut(text, [](std::string_view all, std::size_t begin) { return data::llama_word_end(all, begin, 3); });
}

}  // namespace

TEST_CASE("classes of code points") {
  static_assert(data::unicode_class(U'a') == data::UnicodeClass::letter &&
                data::unicode_class(U'é') == data::UnicodeClass::letter);
  static_assert(data::unicode_class(U'中') == data::UnicodeClass::letter &&
                data::unicode_class(U'½') == data::UnicodeClass::number);
  static_assert(data::unicode_class(U'٣') == data::UnicodeClass::number &&
                data::unicode_class(U'\u3000') == data::UnicodeClass::space);
  static_assert(data::unicode_class(U'\u0301') == data::UnicodeClass::other &&
                data::unicode_class(U'\u200b') == data::UnicodeClass::other);
  static_assert(data::unicode_class(0) == data::UnicodeClass::other &&
                data::unicode_class(0x10ffff) == data::UnicodeClass::other);
  static_assert(data::unicode_class(U'\u001c') == data::UnicodeClass::other &&
                data::unicode_class(U'\u0085') == data::UnicodeClass::space);
  static_assert(data::unicode_class(0x1c89) == data::UnicodeClass::letter);  // new in Unicode 16.0
}

namespace {

/// The bytes of a code point in UTF-8, in at least `least` of them: more than it needs are an overlong form.
std::string utf8(char32_t c, std::size_t least = 1) {
  const std::size_t needed = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, bytes = std::max(needed, least);
  if (bytes == 1) return std::string(1, static_cast<char>(c));
  std::string text(bytes, '\0');
  for (std::size_t k = bytes; k-- > 1; c >>= 6) text[k] = static_cast<char>(0x80u | (c & 0x3fu));
  text[0] = static_cast<char>((0xf00u >> bytes & 0xffu) | c);
  return text;
}

bool is(const data::detail::ClassedCharacter& c, data::UnicodeClass kind, std::size_t bytes) {
  return c.kind == kind && c.bytes == bytes;
}

}  // namespace

TEST_CASE("every code point is one character of its class, and every other form of it is not") {
  int wrong = 0;
  for (char32_t c = 0; c <= 0x13ffff; ++c) {
    const bool valid = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
    const std::string text = utf8(c) + "\x80\x80";
    const auto read = data::detail::character_at(text, 0);
    wrong += valid ? !is(read, data::unicode_class(c), text.size() - 2) : !is(read, data::UnicodeClass::other, 1);
    for (std::size_t bytes = utf8(c).size() + 1; bytes <= 4; ++bytes)
      wrong += !is(data::detail::character_at(utf8(c, bytes), 0), data::UnicodeClass::other, 1);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a byte that begins no character, or one that is cut off, is a character of class other") {
  for (int first = 0x80; first < 0x100; ++first)
    for (const std::string rest : {"", "\x90", "\x90\x90", "\x90\x90\x90", "a\x90\x90", "\x90z\x90", "\x90\x90\xc0"}) {
      const std::size_t bytes = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
      std::size_t valid = 0;
      while (valid < rest.size() && (static_cast<unsigned char>(rest[valid]) & 0xc0u) == 0x80u) ++valid;
      if (bytes > 0 && valid + 1 >= bytes) continue;  // whole
      CAPTURE(first);
      CHECK(is(data::detail::character_at(std::string(1, static_cast<char>(first)) + rest, 0),
               data::UnicodeClass::other, 1));
    }
}

TEST_CASE("letters, numbers and others are words, with one space before them") {
  CHECK(cut("Hello world 42!? x1") == "Hello| world| 42|!?| x|1");
  CHECK(cut("a  b   c") == "a| | b|  | c");
  CHECK(cut(" über  中文42") == " über| | 中文|42");
  CHECK(cut("e\xcc\x81t") == "e|\xcc\x81|t");  // a combining accent is not a letter
}

TEST_CASE("contractions are words of their own, in lower case only") {
  CHECK(cut("it's they'll we've I'm 'tis I'D x'd're") == "it|'s| they|'ll| we|'ve| I|'m| '|tis| I|'|D| x|'d|'re");
  CHECK(cut("''s 's 'v") == "''|s| '|s| '|v");
  CHECK(cut("'") == "'");
  CHECK(cut("'l") == "'|l");
}

TEST_CASE("white space is one word, less its last character if a word follows") {
  CHECK(cut("a \t b") == "a| \t| b");
  CHECK(cut("a\tb") == "a|\t|b");
  CHECK(cut("a\n\nb") == "a|\n|\n|b");
  CHECK(cut("a \n ") == "a| \n ");
  CHECK(cut("  \xe3\x80\x80!") == "  |\xe3\x80\x80|!");  // only U+0020 joins the word behind it
  CHECK(cut(" ") == " ");
}

TEST_CASE("each byte that is not UTF-8 is one character of class other, and none is lost") {
  CHECK(cut("a\xff b") == "a|\xff| b");
  CHECK(cut("\xc3") == "\xc3");                             // cut off
  CHECK(cut("\xc0\xafx") == "\xc0\xaf|x");                  // overlong
  CHECK(cut("\xed\xa0\x80x") == "\xed\xa0\x80|x");          // half of a surrogate pair
  CHECK(cut("\xf4\x90\x80\x80x") == "\xf4\x90\x80\x80|x");  // beyond U+10FFFF
  CHECK(cut("\xe4\xb8"
            "a") == "\xe4\xb8|a");            // the beginning of a letter
  CHECK(cut("\xe2\x80 z") == "\xe2\x80| z");  // the beginning of a space
}

TEST_CASE("Llama 3: letters after one other character, up to three digits, others after one space") {
  CHECK(cut3("Hello world (it) $x _y") == "Hello| world| (|it|)| $|x| _|y");
  CHECK(cut3("(it \tb\u3000c\xff"
             "d") ==
        "(it| |\tb|\u3000c|\xff"
        "d");
  CHECK(cut3("1234567 89 \u0663\u0664\u0665\u0666") == "123|456|7| |89| |\u0663\u0664\u0665|\u0666");
  CHECK(cut3("!!a ..b  ??") == "!!|a| ..|b| | ??");
  CHECK(cut3("e\u0301t \u0301") == "e|\u0301t| \u0301");
  const auto one = [](std::string_view all, std::size_t begin) { return data::llama_word_end(all, begin, 1); };
  CHECK(cut("12a3", one) == "1|2|a|3");
  CHECK(cut("1", one) == "1");
}

TEST_CASE("Llama 3: contractions in either case") {
  CHECK(cut3("it'S we'LL I'Ve you'RE'd'M'T") == "it|'S| we|'LL| I|'Ve| you|'RE|'d|'M|'T");
  CHECK(cut3("'sa 'lx 'r '") == "'s|a| '|lx| '|r| '");
  CHECK(cut3("'\u017fa '\u0173 '") == "'\u017f|a| '|\u0173| '");
  CHECK(cut3("'\xc5") == "'\xc5");
  CHECK(cut3("'3") == "'|3");
  CHECK(cut3("'l1'v\xe9") == "'l|1|'v|\xe9");
}

TEST_CASE("Llama 3: white space up to its last line end, or less its last character if a word follows") {
  CHECK(cut3("a\n\n  b") == "a|\n\n| | b");
  CHECK(cut3("a \r\n \n\t c") == "a| \r\n \n|\t| c");
  CHECK(cut3("a.\r\n\nb") == "a|.\r\n\n|b");
  CHECK(cut3("a . \n") == "a| .| \n");
  CHECK(cut3("   ") == "   ");
  CHECK(cut3("  1") == " | |1");
  CHECK(cut3(" \u3000.") == " |\u3000|.");
  CHECK(cut3("\nab\rc") == "\n|ab|\r|c");
  CHECK(cut3("\t.") == "\t|.");
}

TEST_CASE("words that begin with a mark") {
  const auto marked = [](std::string_view all, std::size_t begin) {
    return data::marked_word_end(all, begin, "\u2581");
  };
  CHECK(cut("a\u2581b\u2581\u2581c", marked) == "a|\u2581b|\u2581|\u2581c");
  CHECK(cut("\u2581", marked) == "\u2581");
}
