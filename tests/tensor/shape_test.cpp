// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/tensor/shape.hpp>

using namespace dspp;

TEST_CASE("a Shape counts elements and rows, and negative dimensions count from the end") {
  constexpr auto s = shape(2, 3, 4);
  static_assert(s.count() == 24 && s.rows() == 6 && s[-1] == 4 && s[-3] == s[0]);
  static_assert(s.product(1, 3) == 12 && s.product(2, 2) == 1);
  static_assert(shape().count() == 1);
  CHECK(shape(5).rows() == 1);
}

TEST_CASE("with() replaces one extent") {
  static_assert(shape(2, 3).with(-1, 7) == shape(2, 7));
  CHECK_FALSE(shape(2, 3).with(0, 3) == shape(2, 3));
}

TEST_CASE("shapes are written as people write them") {
  CHECK(to_string(shape(2, 3)) == "[2, 3]");
  CHECK(to_string(shape()) == "[]");
}

TEST_CASE("two shapes that should be equal give an error that names both") {
  CHECK_NOTHROW(require_same_shape(shape(2, 3), shape(2, 3), "add"));
  CHECK_THROWS_WITH_AS(require_same_shape(shape(2, 3), shape(3, 2), "add"),
                       "dspp: add needs two tensors of one shape, but they are [2, 3] and [3, 2]. Reshape or broadcast "
                       "one of them first.",
                       Error);
}

TEST_CASE("extents below 0, and more bytes than 63 bits count, are an error instead of another size") {
  CHECK(bytes_of(shape(2, 3), 8) == 48);
  CHECK(bytes_of(shape(), 4) == 4);
  const Size large = Size{1} << 62;
  CHECK(bytes_of(shape(large, 0), 8) == 0);
  CHECK(bytes_of(shape(0, large, large), 8) == 0);
  static_assert(bytes_of(shape(2, 3), 8) == 48);
  for (const auto& bad : {shape(large, 1), shape(large, 4), shape(Size{1} << 31, Size{1} << 32), shape(-1, 2),
                          shape(-2, -3), shape(0, -1)})
    CHECK_THROWS_WITH_AS(bytes_of(bad, 8),
                         ("dspp: a tensor needs extents of at least 0 and fewer than 2^63 bytes, but got " +
                          to_string(bad) + " of 8 bytes each. Check what the extents are computed from.")
                             .c_str(),
                         Error);
}
