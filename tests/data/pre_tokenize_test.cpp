// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <dspp/data/pre_tokenize.hpp>

using namespace dspp;

namespace {

/// The words with bars between them.
std::string cut(std::string_view text) {
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

}  // namespace

TEST_CASE("classes of code points") {
  static_assert(unicode_class(U'a') == UnicodeClass::letter && unicode_class(U'é') == UnicodeClass::letter);
  static_assert(unicode_class(U'中') == UnicodeClass::letter && unicode_class(U'½') == UnicodeClass::number);
  static_assert(unicode_class(U'٣') == UnicodeClass::number && unicode_class(U'\u3000') == UnicodeClass::space);
  static_assert(unicode_class(U'\u0301') == UnicodeClass::other && unicode_class(U'\u200b') == UnicodeClass::other);
  static_assert(unicode_class(0) == UnicodeClass::other && unicode_class(0x10ffff) == UnicodeClass::other);
  static_assert(unicode_class(U'\u001c') == UnicodeClass::other && unicode_class(U'\u0085') == UnicodeClass::space);
  static_assert(unicode_class(0x1c89) == UnicodeClass::letter);  // new in Unicode 16.0
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
