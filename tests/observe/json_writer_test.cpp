// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>

#include <dspp/io/json.hpp>
#include <dspp/observe/json_writer.hpp>
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

TEST_CASE("numbers that are not finite become null, which JSON has") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(JsonObject().add("x", infinity).add("y", -infinity).add("z", std::numeric_limits<double>::quiet_NaN()).text() ==
        R"({"x":null,"y":null,"z":null})");
}

TEST_CASE("whatever a string holds, a strict reader gives it back") {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  all += "\xc3\xa9\xf0\x9f\x8e\x89";
  const JsonTree read = json_tree(JsonObject().add(all, all).text(), "a test");
  REQUIRE(read.keys.size() == 1);
  CHECK(read.keys[0] == all);
  CHECK(read.items[0].string == all);
}
