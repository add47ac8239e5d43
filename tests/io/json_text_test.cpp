// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include <dspp/io/json.hpp>
#include <dspp/io/json_text.hpp>

using namespace dspp;

TEST_CASE("numbers and objects are written as Python writes them") {
  for (const double value : {1.0, 0.1, 1e-5, 1e300, -2.5, 0.0, 10000.0, 1.0 / 3e4, 9007199254740993.0, -5e-324}) {
    const std::string text = json_real(value);
    const Json read = parse_json(text, "a test");
    CHECK(read.is(Json::Kind::real));
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

TEST_CASE("long texts are shortened for sentences, never inside a character") {
  const std::string most(200, 'x'), cut = std::string(199, 'x') + "\xc3\xa9";
  CHECK(shortened(most) == most);
  CHECK(shortened(most + "x") == most + "...");
  CHECK(shortened(cut) == std::string(199, 'x') + "...");
  CHECK(json_name(most) == json_quoted(most));
  CHECK(json_name(cut) == json_quoted(std::string(199, 'x')) + "...");
  CHECK(json_name("a\"b", 2) == "\"a\\\"\"...");
  CHECK(json_name("a\"b", 3) == json_quoted("a\"b"));
}
