// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/slice.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto x = Tensor<bf16, 3, D>::zeros(shape(2, 6, 50), memory);
    const auto parts = ops::split(x, 1, std::array<Size, 3>{1, 2, 3});
    const auto again = ops::concat(parts, 1);
    const auto padded = ops::pad_zero(ops::slice(x, 2, 3, 9), 2, 1, 30);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.peak() > 0;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("slice and pad_zero are each other's vjp") {
  Pool pool;
  for (const int dimension : {0, 1, 2}) {
    const auto x = laws::random<double>(shape(4, 7, 5), pool, 1);
    const auto dy = laws::random<double>(x.shape().with(dimension, 2), pool, 2);
    const Size whole = x[dimension];
    laws::check_gradient(x, ops::pad_zero(dy, dimension, 1, whole),
                         [&] { return laws::dot(ops::slice(x, dimension, 1, 2), dy); });
    const auto narrow = laws::copy(dy);
    laws::check_gradient(narrow, ops::slice(x, dimension, 1, 2),
                         [&] { return laws::dot(ops::pad_zero(narrow, dimension, 1, whole), x); });
  }
}

TEST_CASE("concat puts back together what split took apart, and is its vjp") {
  Pool pool;
  for (const int dimension : {0, 1, 2}) {
    const auto x = laws::random<double>(shape(6, 6, 6), pool, 3), dy = laws::random<double>(shape(6, 6, 6), pool, 4);
    const auto uneven = ops::split(x, dimension, std::array<Size, 3>{1, 0, 5});
    CHECK(laws::same_bits(ops::concat(uneven, dimension), x));
    const auto even = ops::split<2>(x, dimension);
    CHECK(even[1].shape() == x.shape().with(dimension, 3));
    CHECK(laws::same_bits(ops::concat(even[0], even[1], dimension), x));
    const auto dparts = ops::split<2>(dy, dimension);
    laws::check_gradient(even[1], dparts[1], [&] { return laws::dot(ops::concat(even, dimension), dy); });
  }
}

TEST_CASE("pad_zero writes zeros around x and nothing else") {
  Pool pool;
  auto x = laws::random<bf16>(shape(3, 2), pool, 5);
  const auto y = ops::pad_zero(x, 1, 1, 4);
  for (Size i = 0; i < 3; ++i) {
    CHECK(y.data()[4 * i].bits == 0);
    CHECK(y.data()[4 * i + 1].bits == x.data()[2 * i].bits);
    CHECK(y.data()[4 * i + 2].bits == x.data()[2 * i + 1].bits);
    CHECK(y.data()[4 * i + 3].bits == 0);
  }
}

TEST_CASE("slices make the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("a range or dimension that does not exist is an error with its value") {
  Pool pool;
  const volatile int absent = 2;  // hidden from the compiler, which would warn
  const auto x = laws::random<float>(shape(2, 3), pool, 6), y = laws::random<float>(shape(4, 2), pool, 7);
  CHECK_THROWS_WITH_AS(
      ops::slice(x, 1, 2, 2),
      "dspp: slice needs a range inside of 0 to 3, but it got 2 to 4. Check the offset and the extent.", Error);
  CHECK_THROWS_WITH_AS(
      ops::pad_zero(x, 0, 1, 2),
      "dspp: pad_zero needs a range inside of 0 to 2, but it got 1 to 3. Check the offset and the extent.", Error);
  CHECK_THROWS_WITH_AS(ops::slice(x, absent, 0, 1),
                       "dspp: slice needs a dimension from 0 to 1, but it got 2. Count dimensions from the outermost.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::concat(x, y, 0),
                       "dspp: concat needs two tensors of one shape, but they are [0, 2] and [0, 3]. Reshape or "
                       "broadcast one of them first.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::split<2>(x, 1),
                       "dspp: split needs parts that together are of 3 elements, but it has 2. Give one that fits the "
                       "other arguments.",
                       Error);
}
