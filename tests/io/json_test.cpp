// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/io/json.hpp>
#include <laws/json_tree.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

std::string sentence_of(std::string_view text) {
  try {
    io::parse_json(text, "a test");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    const std::string sentence = error.what();
    const std::string begin = "dspp: a test needs valid JSON, but byte ", end = ". Write the file again.";
    REQUIRE(sentence.starts_with(begin));
    REQUIRE(sentence.ends_with(end));
    return sentence.substr(begin.size(), sentence.size() - begin.size() - end.size());
  }
  return "no error";
}

/// A code point in so many bytes, whether UTF-8 allows it or not.
std::string in_bytes(std::uint32_t code, int bytes) {
  if (bytes == 1) return {static_cast<char>(code)};
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    const std::uint32_t bits = code >> 6 * (bytes - 1 - i);
    text += static_cast<char>(i == 0 ? ((0xf00u >> bytes) & 0xffu) | bits : 0x80u | (bits & 0x3fu));
  }
  return text;
}

}  // namespace

TEST_CASE("values of every kind are read") {
  const JsonTree json =
      json_tree(R"( { "a" : [ 1 , -2.5e1 , true , false , null ] , "b" : { } , "c" : "x" , "d" : [ ] } )", "a test");
  REQUIRE(json.is(io::Json::Kind::object));
  CHECK(json.keys == std::vector<std::string>{"a", "b", "c", "d"});
  const JsonTree& a = *json.find("a");
  REQUIRE(a.items.size() == 5);
  CHECK(a.items[0].is(io::Json::Kind::integer));
  CHECK(a.items[0].integer == 1);
  CHECK(a.items[1].is(io::Json::Kind::real));
  CHECK(a.items[1].real == -25.0);
  CHECK(a.items[2].boolean);
  CHECK(a.items[3].is(io::Json::Kind::boolean));
  CHECK_FALSE(a.items[3].boolean);
  CHECK(a.items[4].is(io::Json::Kind::null));
  CHECK(json.find("b")->is(io::Json::Kind::object));
  CHECK(json.find("c")->string == "x");
  CHECK(json.find("d")->items.empty());
  CHECK(json.find("e") == nullptr);
}

TEST_CASE("the four characters of white space may be anywhere between values, and no other may") {
  for (const std::string space : {" ", "\t", "\n", "\r", "\r\n\t "}) {
    const JsonTree read =
        json_tree(space + "[" + space + "1" + space + "," + space + "2E+3" + space + "]" + space, "a test");
    REQUIRE(read.items.size() == 2);
    CHECK(read.items[0].integer == 1);
    CHECK(read.items[1].real == 2000);
  }
  for (const std::string other : {"\v", "\f"}) CHECK_THROWS_AS(json_tree("[" + other + "1]", "a test"), Error);
}

TEST_CASE("numbers are integers as long as they fit") {
  CHECK(json_tree("9223372036854775807", "a test").integer == INT64_MAX);
  CHECK(json_tree("-9223372036854775808", "a test").integer == INT64_MIN);
  CHECK(json_tree("9223372036854775808", "a test").is(io::Json::Kind::real));
  CHECK(json_tree("9223372036854775808", "a test").real == 0x1p63);
  CHECK(json_tree("1.0", "a test").is(io::Json::Kind::real));
  CHECK(json_tree("-0", "a test").is(io::Json::Kind::integer));
}

TEST_CASE("escapes and surrogate pairs become UTF-8, and quoting is their inverse") {
  CHECK(json_tree(R"("\"\\\/\b\f\n\r\t")", "a test").string == "\"\\/\b\f\n\r\t");
  CHECK(json_tree(R"("\u0041\u00e9\u20AC\ud83d\ude00")", "a test").string == "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(json_quoted("a\"\\\n\x1f\xc3\xa9") == "\"a\\\"\\\\\\n\\u001f\xc3\xa9\"");
  CHECK(json_tree(R"("\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\ud800\udc00\udbff\udfff")", "a test").string ==
        "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
  std::string all;
  for (char c = 1; c < 127; ++c) all += c;
  CHECK(json_tree(json_quoted(all), "a test").string == all);
}

TEST_CASE("invalid JSON is refused with the offset of the byte") {
  CHECK(sentence_of("") == "0 is past the end");
  CHECK(sentence_of("{\"a\":1") == "6 is past the end");
  CHECK(sentence_of("[1,]") == "3 begins no value");
  CHECK(sentence_of("{\"a\":1,}") == "7 is not the '\"' expected");
  CHECK(sentence_of("{a:1}") == "1 is not the '\"' expected");
  CHECK(sentence_of("[1] 2") == "4 comes after the end");
  CHECK(sentence_of("[1 /* c */]") == "3 is not the ']' expected");
  CHECK(sentence_of("tru") == "0 begins no value");
  CHECK(sentence_of("NaN") == "0 begins no value");
  for (const char* number : {"01", "1.", ".5", "1e", "-", "+1", "1e+"}) {
    CAPTURE(number);
    CHECK(sentence_of(number) == "0 begins no value");
  }
  CHECK(sentence_of("\"abc") == "4 is past the end");
  CHECK(sentence_of("\"a\nb\"") == "2 is a control character in a string");
  CHECK(sentence_of("\"\\x\"") == "2 is no escape");
  CHECK(sentence_of("\"\\u12g4\"") == "3 begins no four hexadecimal digits");
  CHECK(sentence_of("\"\\u12") == "3 begins no four hexadecimal digits");
  CHECK(sentence_of("\"\\ud83d\"") == "6 ends half of a surrogate pair");
  CHECK(sentence_of("\"\\ud83d\\n\"").find("ends half of a surrogate pair") != std::string::npos);
  CHECK(sentence_of("\"\\ude00\"") == "6 ends half of a surrogate pair");
  CHECK(sentence_of("\"\\ud83d\\u0041\"") == "12 ends half of a surrogate pair");
  CHECK(sentence_of("\"\\ud800\\ue000\"") == "12 ends half of a surrogate pair");
  CHECK(sentence_of("\"\\udc00\\udc00\"") == "6 ends half of a surrogate pair");
  CHECK(sentence_of("[{\"a\":1,\"b\":2,\"a\":3}]") == "1 opens an object that names \"a\" twice");
}

TEST_CASE("64 levels are read, more are refused, however many") {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
  };
  CHECK(sentence_of(nested(65)) == "no error");
  CHECK(sentence_of(nested(66)) == "65 opens more than 64 levels");
  CHECK(sentence_of(nested(1 << 20)) == "65 opens more than 64 levels");
}

TEST_CASE("a number that no f64 holds is refused, and so is a text of too many values") {
  CHECK(json_tree("1.7976931348623157e308", "a test").real == 1.7976931348623157e308);
  CHECK(sentence_of("[1, 1e309]") == "4 begins a number that no f64 holds");
  CHECK(sentence_of("-1e999") == "0 begins a number that no f64 holds");
  CHECK(json_tree(R"([0, {"a": 1}])", "a test", 4).items.size() == 2);  // the list, 0, the object, 1
  CHECK_THROWS_WITH_AS(json_tree(R"([0, {"a": 1}])", "a test", 3),
                       "dspp: a test needs valid JSON, but byte 9 begins more values than are read. Write the file "
                       "again.",
                       Error);
}

TEST_CASE("values are described for sentences") {
  const JsonTree values = json_tree(R"([null, true, false, 3, 0.5, "x", [], {}])", "a test");
  std::string words;
  for (const JsonTree& value : values.items) words += io::json_in_words(io::Json(value.text)) + " ";
  CHECK(words == "null true false 3 0.5 \"x\" a list an object ");
  const JsonTree longer = json_tree(json_quoted(std::string(59, 'x') + "\xc3\xa9" + "y"), "a test");
  CHECK(io::json_in_words(io::Json(longer.text)) == json_quoted(std::string(59, 'x')) + "...");
  const std::string sixty(60, 'x');
  for (const std::string& more : {std::string(), std::string("x")}) {
    const JsonTree text = json_tree(json_quoted(sixty + more), "a test");
    CHECK(io::json_in_words(io::Json(text.text)) == json_quoted(sixty) + (more.empty() ? "" : "..."));
  }
}

TEST_CASE("bad UTF-8 is found at its first byte") {
  CHECK(io::first_bad_utf8("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf") ==
        -1);
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc3(", "\xe2(\xac"})
    CHECK(io::first_bad_utf8(std::string("ok") + bad) == 2);
  CHECK(sentence_of("\"\xff\"") == "1 is not UTF-8");
  CHECK(sentence_of("\xff") == "0 is not UTF-8");
  CHECK(sentence_of("\xef\xbb\xbf{}") == "0 begins a byte order mark");
}

TEST_CASE("the first and the last character of each length are not valid in another length, cut off or split") {
  const std::uint32_t last_of[] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
  for (const std::uint32_t code : {0u,       0x7fu,    0x80u,    0x7ffu,    0x800u,    0xfffu,    0x1000u,   0xcfffu,
                                   0xd7ffu,  0xd800u,  0xdbffu,  0xdc00u,   0xdfffu,   0xe000u,   0xffffu,   0x10000u,
                                   0x3ffffu, 0x40000u, 0xfffffu, 0x100000u, 0x10ffffu, 0x110000u, 0x13ffffu, 0x140000u})
    for (const int bytes : {1, 2, 3, 4}) {
      if (code >> (bytes == 1 ? 7 : 5 * bytes + 1) != 0) continue;  // needs more bytes
      CAPTURE(code);
      CAPTURE(bytes);
      const bool good =
          code <= last_of[bytes] && (bytes == 1 || code > last_of[bytes - 1]) && !(code >= 0xd800 && code <= 0xdfff);
      const std::string text = in_bytes(code, bytes);
      REQUIRE(text.size() == static_cast<std::size_t>(bytes));
      CHECK(io::first_bad_utf8("ab" + text + "c") == (good ? -1 : 2));
      for (std::size_t cut = 1; cut < text.size(); ++cut)
        CHECK(io::first_bad_utf8(std::string_view(text).substr(0, cut)) == 0);
    }
}

TEST_CASE("nothing after the text is read") {
  CHECK(json_tree(std::string_view("12", 1), "a test").integer == 1);
  CHECK(sentence_of(std::string_view("[1]", 2)) == "2 is past the end");
  CHECK(sentence_of(std::string_view("\"a\"", 2)) == "2 is past the end");
  CHECK(sentence_of(std::string_view("\"\\n", 2)) == "2 is no escape");
}

TEST_CASE("a string takes no more memory than its text") {
  for (const std::string piece : {"x", "\\n", "\\\""}) {
    std::string text;
    for (int i = 0; i < 1001; ++i) text += piece;
    const std::string all = "[\"" + text + "\", \"" + text + "\", \"" + text + "\"]";
    for (const io::Json& item : io::parse_json(all, "a test").items()) CHECK(item.string.capacity() == text.size());
  }
}

TEST_CASE("lists and objects stay in the text and are read one item at a time") {
  const std::string text = R"( {"a" : [1, "x", {"b": []}] , "\u0061b" : -0.5e1,"":null, "c]}\"":{}} )";
  const io::Json json = io::parse_json(text, "a test");
  CHECK(json.text == std::string_view(text).substr(1, text.size() - 2));
  std::string all;
  for (const io::Json& member : json.items()) all += json_quoted(member.key) + "=" + io::json_in_words(member) + ";";
  CHECK(all == R"("a"=a list;"ab"=-5.0;""=null;"c]}\""=an object;)");
  CHECK(json.count() == 4);
  CHECK(json.find("ab")->real == -5);
  CHECK(json.find("")->is(io::Json::Kind::null));
  CHECK(json.find("c]}\"")->text == "{}");
  CHECK_FALSE(json.find("b").has_value());
  const io::Json list = *json.find("a");
  CHECK(list.text == R"([1, "x", {"b": []}])");
  all.clear();
  for (const io::Json& item : list.items()) all += std::string(item.text) + item.key + item.string + ";";
  CHECK(all == R"(1;"x"x;{"b": []};)");
  CHECK_FALSE(list.find("b").has_value());
  CHECK(json.find("ab")->count() == 0);
  CHECK(io::Json{}.count() == 0);
}

// Repeating its read for each of the others would take minutes.
TEST_CASE("a long key with an escape among many") {
  std::string text = "{\"\\u0061" + std::string(std::size_t{1} << 22, 'b') + "\":0";
  for (int i = 0; i < 9000; ++i) text += ",\"" + std::to_string(i) + "\":0,\"a\\u0062" + std::to_string(i) + "\":0";
  text += '}';
  CHECK(io::parse_json(text, "a text").count() == 18001);
}

TEST_CASE("keys with different escapes are the same key, and the smallest duplicate is named") {
  CHECK(sentence_of(R"({"b":1,"\u0061":1,"a":2,"b":2})") == "0 opens an object that names \"a\" twice");
  CHECK(sentence_of(R"({"a":{"x" :1},"c":[{"x":1, "x"  : 2}],"a":0})") == "19 opens an object that names \"x\" twice");
  CHECK(sentence_of(R"({"a":["a","a"],"b":{"a":"b"},"\"":0})") == "no error");
  CHECK(sentence_of(R"({"":1,"":2})") == "0 opens an object that names \"\" twice");
  CHECK(sentence_of(R"({"\u20ac\uD83D\uDE00!":1,"€":2,"€😀!":3})") == "0 opens an object that names \"€😀!\" twice");
  CHECK(sentence_of(R"({"\u20ac\uD83D\uDE00":1,"€\u0000":2,"€😀!":3,"€":4,"\ud83d\ude00":5})") == "no error");
  CHECK(sentence_of(R"({"a":{"b":{"c":1},"c":2},"b":{"c":1}})") == "no error");
}
