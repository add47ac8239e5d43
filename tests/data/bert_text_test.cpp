// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include <dspp/data/bert_text.hpp>

using namespace dspp;

namespace {

std::string normal(std::string_view text, const data::BertNormalizer& how) {
  std::string out;
  how(text, out);
  return out;
}

/// The words with bars between them.
std::string cut(std::string_view text) {
  std::string all;
  for (auto [begin, end] = data::bert_word(text, 0); begin < end; std::tie(begin, end) = data::bert_word(text, end))
    all += (all.empty() ? "" : "|") + std::string(text.substr(begin, end - begin));
  return all;
}

constexpr data::BertNormalizer none{false, false, false, false};

}  // namespace

TEST_CASE("clean_text removes control characters and makes white space U+0020") {
  data::BertNormalizer clean = none;
  clean.clean_text = true;
  CHECK(normal("a\tb\nc\rd e", clean) == "a b c d e");
  CHECK(normal(std::string_view("a\0b\x01\x7f\v\f", 7), clean) == "ab");
  CHECK(normal("a\u00a0b\u3000c\u2028d\u0085e\ufffdf\u200bg", clean) ==
        "a b c def"
        "g");
  CHECK(normal("a\tb\v\ufffd", none) == "a\tb\v\ufffd");
  CHECK(normal("a\xff"
               "b\xe4\xb8",
               clean) == "ab");
  CHECK(normal("a\xff"
               "b",
               none) ==
        "a\ufffd"
        "b");
}

TEST_CASE("Chinese characters are set apart") {
  data::BertNormalizer chinese = none;
  chinese.chinese_characters = true;
  CHECK(normal("a\u4e2db\u9fff", chinese) == "a \u4e2d b \u9fff ");
  CHECK(normal("\u33ff\u3400\u4dbf\u4dc0", chinese) == "\u33ff \u3400  \u4dbf \u4dc0");
  CHECK(normal("\U0001ffff\U00020000\U0002a6df\U0002a6e0", chinese) == "\U0001ffff \U00020000  \U0002a6df \U0002a6e0");
  CHECK(normal("\u3042\uac00", chinese) == "\u3042\uac00");
  CHECK(normal("\u4e2d", none) == "\u4e2d");
}

TEST_CASE("accents are removed after decomposition, what stays is in canonical order") {
  data::BertNormalizer strip = none;
  strip.strip_accents = true;
  CHECK(normal("\u00e9\u1ed9 e\u0301", strip) == "eo e");
  CHECK(normal("\uac01", strip) == "\u1100\u1161\u11a8");
  CHECK(normal("\u00df\u0130", strip) == "\u00dfI");
  CHECK(normal("a\U0001d165\u302e\u0301", strip) == "a\U0001d165\u302e");
  CHECK(normal("a\u302e\U0001d165", strip) == "a\U0001d165\u302e");        // 216 before 224
  CHECK(normal("a\u302e\u034f\U0001d165", strip) == "a\u302e\U0001d165");  // U+034F keeps them apart, and goes
  CHECK(normal("\u302ex\u302e", strip) == "\u302ex\u302e");
  CHECK(normal("e\u0301", none) == "e\u0301");
}

TEST_CASE("lower case") {
  data::BertNormalizer lower = none;
  lower.lower_case = true;
  CHECK(normal("AZaz09[\u00c9\u03a3\u0416\u01c4\u01c5\U00010400", lower) ==
        "azaz09[\u00e9\u03c3\u0436\u01c6\u01c6\U00010428");
  CHECK(normal("\u0130I\u1e9e", lower) == "i\u0307i\u00df");
  CHECK(normal("@[`{\u00d7\u00df", lower) == "@[`{\u00d7\u00df");
  CHECK(normal("AZ", none) == "AZ");
}

TEST_CASE("words end at white space and at punctuation, which is a word") {
  CHECK(cut("hello, world") == "hello|,|world");
  CHECK(cut("  a\t\u3000b \n") == "a|b");
  CHECK(cut("don't $5 a_b\u2019s\u3002") == "don|'|t|$|5|a|_|b|\u2019|s|\u3002");
  CHECK(cut("\u00e9\xff"
            "a \xff") ==
        "\u00e9\xff"
        "a|\xff");
  CHECK(cut("") == "");
  CHECK(cut("   ") == "");
  CHECK(cut("!!") == "!|!");
}
