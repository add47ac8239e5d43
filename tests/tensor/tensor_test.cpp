// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/tensor/tensor.hpp>

using namespace dspp;

TEST_CASE("copies of a Tensor share its elements, and the last one frees them") {
  Pool pool;
  auto a = Tensor<float, 2>::zeros(shape(2, 3), pool);
  CHECK(a.unique());
  {
    const auto b = a;
    CHECK_FALSE(a.unique());
    b.data()[5] = 7;
    CHECK(a.data()[5] == 7);
  }
  CHECK(a.unique());
  CHECK(pool.live() == 64);
  a.release();
  CHECK_FALSE(a);
  CHECK(pool.live() == 0);
}

TEST_CASE("a Tensor without a block is a sentence where it is asked for elements or memory") {
  const char* const sentence =
      "dspp: a tensor needs elements to be read or written, but this one has none: it was never set, was released, or "
      "was moved to where it is used. Read it before that, or pass it without std::move.";
  Pool pool;
  auto moved = Tensor<float, 1>::zeros(shape(2), pool), released = Tensor<float, 1>::zeros(shape(2), pool);
  const auto taken = std::move(moved);
  released.release();
  for (const auto& x : {moved, released, Tensor<float, 1>()}) {
    CHECK_THROWS_WITH_AS(x.data(), sentence, Error);
    CHECK_THROWS_WITH_AS(x.memory(), sentence, Error);
    CHECK_THROWS_WITH_AS(x.read([](const float*) {}), sentence, Error);
    CHECK_THROWS_WITH_AS(x.storage().bytes(), sentence, Error);
  }
  CHECK(taken.data()[1] == 0);
}

TEST_CASE("a reshape and a view see the same elements and keep the block alive") {
  Pool pool;
  auto a = Tensor<float, 2>::zeros(shape(2, 6), pool);
  const auto b = a.reshape(shape(3, 4));
  const auto row = Tensor<float, 1>::view(a.storage(), 6, shape(6));
  row.data()[0] = 5;
  CHECK(b.data()[6] == 5);
  a.release();
  CHECK(pool.live() == 64);
  CHECK(row.data()[0] == 5);
}

TEST_CASE("a reshape to another number of elements gives an error that names both") {
  Pool pool;
  const auto a = Tensor<float, 2>::zeros(shape(2, 3), pool);
  CHECK_THROWS_WITH_AS(a.reshape(shape(5)),
                       "dspp: reshape needs a shape of the same number of elements, but [2, 3] has 6 and [5] has 5. "
                       "Give extents whose product is equal.",
                       Error);
}

TEST_CASE("a Tensor on paper has a shape, bytes and no data") {
  constexpr Size bytes = [] {
    Ledger ledger;
    const auto a = Tensor<double, 3, Meta>::zeros(shape(2, 3, 4), ledger, Category::data, "x");
    return a.data() == nullptr && a.count() == 24 ? ledger.live_by_category()[Category::data] : -1;
  }();
  CHECK(bytes == 192);
}
