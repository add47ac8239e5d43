// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/observe/table.hpp>

using namespace dspp;

TEST_CASE("columns are as wide as their widest cell: the first aligned left, the others right") {
  Table table({"name", "a", "long heading"});
  table.add({"x", "12345", "1"});
  table.add({"a longer name", "6", ""});
  CHECK(table.text() ==
        "  name               a  long heading\n"
        "  x              12345             1\n"
        "  a longer name      6\n");
}

TEST_CASE("a row of another width is refused") {
  Table table({"a", "b"});
  CHECK_THROWS_WITH_AS(table.add({"1"}),
                       "dspp: a Table needs rows as wide as its heading, but one is not. Give each column a cell.",
                       Error);
}
