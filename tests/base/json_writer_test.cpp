// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <dspp/base/json_writer.hpp>
#include <dspp/io/json.hpp>
#include <laws/json_tree.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("an object is written in the order in which members were added") {
  CHECK(JsonObject().text() == "{}");
  CHECK(JsonObject().add("b", 1).add("a", true).add("c", JsonObject().add("d", "e")).text() ==
        R"({"b":1,"a":true,"c":{"d":"e"}})");
}

TEST_CASE("whole numbers are written whole, real ones with the digits that read back the same") {
  const JsonObject object = JsonObject()
                                .add("largest", std::numeric_limits<Size>::max())
                                .add("smallest", std::numeric_limits<Size>::min())
                                .add("third", 1.0 / 3)
                                .add("tiny", 5e-324)
                                .add("whole", 2.0);
  const JsonTree read = json_tree(object.text(), "a test");
  CHECK(read.find("largest")->integer == std::numeric_limits<Size>::max());
  CHECK(read.find("smallest")->integer == std::numeric_limits<Size>::min());
  CHECK(read.find("third")->real == 1.0 / 3);
  CHECK(read.find("tiny")->real == 5e-324);
  CHECK(read.find("whole")->real == 2.0);
}

TEST_CASE("numbers that are not finite become null") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(JsonObject().add("x", infinity).add("y", -infinity).add("z", std::numeric_limits<double>::quiet_NaN()).text() ==
        R"({"x":null,"y":null,"z":null})");
}

TEST_CASE("a strict reader reads any string back unchanged") {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  all += "\xc3\xa9\xf0\x9f\x8e\x89";
  const JsonTree read = json_tree(JsonObject().add(all, all).text(), "a test");
  REQUIRE(read.keys.size() == 1);
  CHECK(read.keys[0] == all);
  CHECK(read.items[0].string == all);
}

TEST_CASE("numbers and objects are written as Python writes them") {
  for (const double value : {1.0, 0.1, 1e-5, 1e300, -2.5, 0.0, 10000.0, 1.0 / 3e4, 9007199254740993.0, -5e-324}) {
    const std::string text = json_real(value);
    const io::Json read = io::parse_json(text, "a test");
    CHECK(read.is(io::Json::Kind::real));
    CHECK(read.real == value);
  }
  CHECK(json_real(1e-5) == "1e-05");
  CHECK(json_real(500000) == "500000.0");
  CHECK(json_real(1e-4) == "0.0001");
  CHECK(json_real(std::nextafter(1e-4, 0)) == "9.999999999999999e-05");
  CHECK(json_real(1e16) == "1e+16");
  CHECK(json_real(-1e16) == "-1e+16");
  CHECK(json_real(9999999999999998.0) == "9999999999999998.0");
  CHECK(json_quoted("\x1f\x20~\x7f") == "\"\\u001f ~\x7f\"");
  CHECK(json_lines({}) == "{}");
  CHECK(json_lines({{"b", "1"}, {"a", json_lines({{"c", "null"}}, 1)}}) ==
        "{\n  \"a\": {\n    \"c\": null\n  },\n  \"b\": 1\n}");
}

TEST_CASE("a string keeps its bytes except for what JSON demands, or escapes invisible characters") {
  const std::string text = "\"\\\n\x1b\x7f\xff\xe2\x80\xae\xc3\xa9\xf3\xa0\x80\x81";
  CHECK(json_quoted(text) == "\"\\\"\\\\\\n\\u001b\x7f\xff\xe2\x80\xae\xc3\xa9\xf3\xa0\x80\x81\"");
  CHECK(json_quoted(text, JsonEscapes::unseen) ==
        "\"\\\"\\\\\\u000a\\u001b\\u007f\\ufffd\\u202e\xc3\xa9\\udb40\\udc01\"");
  for (const JsonEscapes escapes : {JsonEscapes::demanded, JsonEscapes::unseen})
    CHECK(JsonObject(escapes).add("\n", text).text() ==
          "{" + json_quoted("\n", escapes) + ":" + json_quoted(text, escapes) + "}");
}

TEST_CASE("lists, lines and values that are JSON already") {
  CHECK(json_list({}) == "[]");
  CHECK(json_list(std::vector<Size>{3, -4}) == "[3,-4]");
  CHECK(json_list_lines({}) == "[]");
  CHECK(json_list_lines({"1", "\"x\""}, 1) == "[\n    1,\n    \"x\"\n  ]");
  CHECK(JsonObject().new_line().add("a", 1).new_line().add_json("b", "[2]").add("c", 3).text() ==
        "{\n\"a\":1,\n\"b\":[2],\"c\":3}");
}
