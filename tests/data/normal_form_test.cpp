// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <dspp/data/normal_form.hpp>

using namespace dspp;

namespace {

std::string utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t c : text) data::append_utf8(bytes, c);
  return bytes;
}

std::string nfc(std::string_view text) {
  std::string out;
  data::append_nfc(text, out);
  return out;
}

std::u32string decomposed(std::u32string_view text) {
  std::u32string all;
  for (const char32_t c : text) data::decompose(c, [&](char32_t part) { all += part; });
  return all;
}

unsigned order_of(char32_t c) {
  const unsigned order = data::detail::combining_class(c);
  return order == data::detail::joins_before ? 0 : order;
}

/// By the definition: decompose all, exchange neighbours until they are in order, join each with the last starter
/// unless something between blocks it.
std::u32string nfc_slowly(std::u32string_view text) {
  std::u32string all = decomposed(text);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 1; i < all.size(); ++i)
      if (order_of(all[i]) != 0 && order_of(all[i - 1]) > order_of(all[i]))
        std::swap(all[i - 1], all[i]), changed = true;
  }
  for (std::size_t i = 1; i < all.size(); ++i)
    for (std::size_t starter = i; starter-- > 0;) {
      const bool adjacent = starter + 1 == i;
      if (order_of(all[starter]) != 0) continue;
      const bool blocked = !adjacent && (order_of(all[i]) == 0 || order_of(all[i - 1]) >= order_of(all[i]));
      const char32_t both = blocked ? 0 : data::composed(all[starter], all[i]);
      if (both != 0) all[starter] = both, all.erase(i--, 1);
      break;
    }
  return all;
}

}  // namespace

TEST_CASE("decompositions, compositions and syllables of Hangul") {
  CHECK(decomposed(U"\u00e9") == U"e\u0301");
  CHECK(decomposed(U"\u1ed9") == U"o\u0323\u0302");  // in two steps
  CHECK(decomposed(U"\u212b") == U"A\u030a");
  CHECK(decomposed(U"\ud55c\uac00") == U"\u1112\u1161\u11ab\u1100\u1161");
  CHECK(decomposed(U"a\u4e2d") == U"a\u4e2d");
  CHECK(data::composed(U'e', U'\u0301') == U'\u00e9');
  CHECK(data::composed(U'\u0915', U'\u093c') == 0);  // U+0958 is never composed
  CHECK(data::composed(U'\u1100', U'\u1161') == U'\uac00');
  CHECK(data::composed(U'\uac00', U'\u11a8') == U'\uac01');
  CHECK(data::composed(U'\uac01', U'\u11a8') == 0);
  CHECK(data::composed(U'\uac00', U'\u11a7') == 0);
  CHECK(data::composed(U'a', U'b') == 0);
}

TEST_CASE("every syllable of Hangul is composed of what it is decomposed to") {
  int wrong = 0;
  for (char32_t c = 0xac00; c <= 0xd7a3; ++c) wrong += nfc(utf8(decomposed(std::u32string(1, c)))) != utf8({&c, 1});
  CHECK(wrong == 0);
}

TEST_CASE("normal form C of some texts") {
  CHECK(nfc(utf8(U"e\u0301")) == utf8(U"\u00e9"));
  CHECK(nfc(utf8(U"o\u0302\u0323x")) == utf8(U"\u1ed9x"));
  CHECK(nfc(utf8(U"\u0301e")) == utf8(U"\u0301e"));
  CHECK(nfc(utf8(U"\u212b\u0958\u0344")) == utf8(U"\u00c5\u0915\u093c\u0308\u0301"));
  CHECK(nfc(utf8(U"a\u034f\u0301")) == utf8(U"a\u034f\u0301"));  // U+034F blocks
  CHECK(nfc("") == "");
  CHECK(nfc("plain\n") == "plain\n");
}

TEST_CASE("bytes that are not UTF-8 stay and join nothing") {
  CHECK(nfc("e\xff\xcc\x81") == "e\xff\xcc\x81");
  CHECK(nfc("e\xcc") == "e\xcc");
  CHECK(nfc("e\xcc\x81\xcc") == "\xc3\xa9\xcc");
  CHECK(nfc("\x80\x80\x80\xcc\x81") == "\x80\x80\x80\xcc\x81");
  CHECK(nfc("a\x80\xcc\x81\xe1") == "a\x80\xcc\x81\xe1");
}

TEST_CASE("random texts are normalized as by the definition") {
  const char32_t some[] = {U'a',      U'e',      U'o',          U'x',          U' ',      U'\u0301',
                           U'\u0302', U'\u0323', U'\u0327',     U'\u0345',     U'\u0308', U'\u00c5',
                           U'\u1ed9', U'\u1100', U'\u1161',     U'\u11a8',     U'\uac00', U'\u0958',
                           U'\u093c', U'\u09c7', U'\u09be',     U'\u034f',     U'\u4e2d', U'\uf900',
                           U'\u05b4', U'\u0591', U'\U0001d15e', U'\U000110ba', U'\u302e'};
  std::mt19937 random(4);
  int changed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::u32string text(random() % 12, U' ');
    for (char32_t& c : text) c = some[random() % std::size(some)];
    const std::string normal = nfc(utf8(text));
    CHECK(normal == utf8(nfc_slowly(text)));
    CHECK(nfc(normal) == normal);
    changed += normal != utf8(text);
  }
  CHECK(changed > 1000);
}

TEST_CASE("a million accents are put in order in far less than quadratic time") {
  std::u32string text = U"a", sorted = U"\u1ea1";
  for (int i = 0; i < 500000; ++i) text += U"\u0315\u0323";
  sorted += std::u32string(499999, U'\u0323') + std::u32string(500000, U'\u0315');
  CHECK(nfc(utf8(text)) == utf8(sorted));
}
