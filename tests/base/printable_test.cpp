// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <ios>
#include <string>

#include <dspp/base/error.hpp>
#include <dspp/base/printable.hpp>

using namespace dspp;

namespace {

std::string utf8(long code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

bool is_ascii(const std::string& text) {
  for (const char c : text)
    if (c < 0x20 || c >= 0x7f) return false;
  return true;
}

}  // namespace

TEST_CASE("every character is shown as it is or as an escape of printable ASCII") {
  int escaped = 0;
  for (long code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const std::string character = utf8(code), shown = printable(character);
    if (shown == character) continue;
    ++escaped;
    if (!is_ascii(shown) || shown[0] != '\\' || printable(shown) != shown) FAIL_CHECK("U+" << std::hex << code);
  }
  CHECK(escaped > 32 + 33 + 128);
  for (const char* shown : {"blocks.0.mlp.up.weight", "für dich — it's all", "日本語", "a\\b", "שלום"})
    CHECK(printable(shown) == shown);
}

TEST_CASE("control and invisible characters are escaped") {
  CHECK(printable("a\nb\tc\rd") == "a\\nb\\tc\\rd");
  CHECK(printable("\x1b[31mred") == "\\x1b[31mred");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\u202egnp.exe") == "\\u202egnp.exe");
  CHECK(printable("\u009b31m") == "\\x9b31m");
  CHECK(printable("\U000e0041") == "\\U000e0041");
  CHECK(printable("a\nb\x1b", LineEnds::kept) == "a\nb\\x1b");
}

TEST_CASE("bytes that are not UTF-8 are escaped in any context") {
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\xc0\x80") == "\\xc0\\x80");           // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half of a surrogate pair
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xe2\x80") == "\\xe2\\x80");  // cut short
  std::uint32_t state = 7;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    const std::string shown = printable(text);
    if (printable(shown) != shown) FAIL_CHECK(shown);
  }
}

TEST_CASE("no name adds a line to a sentence, and only the table of a Pool has more than one") {
  const auto sentence_of = [](auto throws) {
    try {
      throws();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string name = "a'\n\x1b[2Jdspp: all is well.\u202e";
  const std::string shown = "a'\\n\\x1b[2Jdspp: all is well.\\u202e";
  CHECK(sentence_of([&] { fail(ErrorCode::file, "dspp: '" + name + "' is gone."); }) ==
        "dspp: '" + shown + "' is gone.");
  CHECK(sentence_of([&] { fail(ErrorCode::out_of_memory, "dspp: more.\n  a table\x1b"); }) ==
        "dspp: more.\n  a table\\x1b");
  const std::string once = sentence_of([&] { fail(ErrorCode::out_of_memory, "dspp: more.\n  a table\x1b"); });
  CHECK(sentence_of([&] { throw Error(ErrorCode::aborted, once); }) == once);
}
