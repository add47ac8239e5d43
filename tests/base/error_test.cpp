// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/base/error.hpp>

using namespace dspp;

constexpr bool divides(int divisor, int number) {
  require(number % divisor == 0, "dspp: a test needs a number that its divisor divides, but it does not. Change one.",
          ErrorCode::placement, {{"number", number}, {"divisor", divisor}});
  return true;
}
static_assert(divides(2, 6));

TEST_CASE("a sentence with numbers names them at the end of its first half") {
  CHECK(divides(2, 6));
  try {
    divides(4, 6);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::placement);
    CHECK(std::string(error.what()) ==
          "dspp: a test needs a number that its divisor divides, but it does not (number 6, divisor 4). Change one.");
  }
  CHECK_THROWS_WITH_AS(require(false, "dspp: a test needs 1.5, but got less.", ErrorCode::usage, {{"it", -1}}),
                       "dspp: a test needs 1.5, but got less (it -1).", Error);
}
