// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <set>

#include <dspp/data/byte_characters.hpp>

using namespace dspp;

TEST_CASE("every byte has a character of its own, which is the same code point if Latin-1 prints it") {
  static_assert(data::byte_character('!') == '!' && data::byte_character('~') == '~' &&
                data::byte_character(0xff) == 0xff);
  static_assert(data::byte_character(' ') == 0x120 && data::byte_character('\n') == 0x10a &&
                data::byte_character(0) == 0x100);
  static_assert(data::byte_character(0x7f) == 0x121 && data::byte_character(0xa0) == 0x142 &&
                data::byte_character(0xad) == 0x143);
  std::set<char32_t> characters;
  for (int byte = 0; byte < 256; ++byte) characters.insert(data::byte_character(static_cast<unsigned char>(byte)));
  CHECK(characters.size() == 256);
}

TEST_CASE("bytes are written as text and read back") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(static_cast<unsigned char>(byte));
  CHECK(data::written_bytes(" a\n") ==
        "\xc4\xa0"
        "a\xc4\x8a");
  CHECK(data::read_written_bytes(data::written_bytes(all)) == all);
  CHECK(data::read_written_bytes("") == "");
}

TEST_CASE("characters outside the alphabet are not read") {
  CHECK_FALSE(data::read_written_bytes("a b"));               // a space is written U+0120
  CHECK_FALSE(data::read_written_bytes("\xc5\x84"));          // U+0144, one past the last
  CHECK_FALSE(data::read_written_bytes("\xc2\xad"));          // the soft hyphen
  CHECK_FALSE(data::read_written_bytes("\xe4\xb8\xad"));      // of three bytes
  CHECK_FALSE(data::read_written_bytes("\xf0\x9f\x98\x80"));  // of four
}

TEST_CASE("of all texts of one or two bytes exactly the characters of the alphabet are read") {
  std::set<std::string> alphabet, read;
  for (int byte = 0; byte < 256; ++byte)
    alphabet.insert(data::written_bytes(std::string(1, static_cast<char>(static_cast<unsigned char>(byte)))));
  CHECK(alphabet.size() == 256);
  for (int first = 0; first < 256; ++first)
    for (int second = -1; second < 256; ++second) {
      std::string text(1, static_cast<char>(static_cast<unsigned char>(first)));
      if (second >= 0) text += static_cast<char>(static_cast<unsigned char>(second));
      const auto bytes = data::read_written_bytes(text);
      if (bytes && bytes->size() == 1) read.insert(text);
      if (bytes) CHECK(data::written_bytes(*bytes) == text);
    }
  CHECK(read == alphabet);
}
