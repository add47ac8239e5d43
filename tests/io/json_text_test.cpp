// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/io/json_text.hpp>

using namespace dspp;

TEST_CASE("long texts are shortened for sentences, never inside a character") {
  const std::string most(200, 'x'), cut = std::string(199, 'x') + "\xc3\xa9";
  CHECK(io::shortened(most) == most);
  CHECK(io::shortened(most + "x") == most + "...");
  CHECK(io::shortened(cut) == std::string(199, 'x') + "...");
  CHECK(io::json_name(most) == json_quoted(most));
  CHECK(io::json_name(cut) == json_quoted(std::string(199, 'x')) + "...");
  CHECK(io::json_name("a\"b", 2) == "\"a\\\"\"...");
  CHECK(io::json_name("a\"b", 3) == json_quoted("a\"b"));
}
