// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/repeat.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

template <class T>
void check_rows(Size rows, Size n, Size times) {
  Pool pool;
  const auto x = laws::random<T>(shape(rows, n), pool, 1);
  const auto y = ops::repeat(x, times);
  REQUIRE(y.shape() == shape(rows * times, n));
  for (Size i = 0; i < y.count(); ++i) CHECK(y.data()[i] == x.data()[i / n / times * n + i % n]);

  const auto dy = laws::random<T>(y.shape(), pool, 2);
  const auto dx = ops::sum_repeats(dy, times);
  REQUIRE(dx.shape() == x.shape());
  for (Size i = 0; i < dx.count(); ++i) {
    Compute<T> sum = 0;
    for (Size k = 0; k < times; ++k) sum += static_cast<Compute<T>>(dy.data()[(i / n * times + k) * n + i % n]);
    CHECK(dx.data()[i] == static_cast<T>(sum));
  }
}

constexpr bool runs_on_paper() {
  Ledger ledger;
  {
    auto x = Tensor<bf16, 2, Meta>::zeros(shape(6, 5), ledger);
    auto y = ops::sum_repeats(ops::repeat(std::move(x), 4), 4);
    if (y.shape() != shape(6, 5)) return false;
  }
  return ledger.live() == 0 && ledger.flops_forward() == 120;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("rows are repeated `times` times, and their sum is the vjp") {
  for (const Size times : {1, 2, 3}) {
    check_rows<double>(7, 5, times);
    check_rows<float>(1, 64, times);
    check_rows<bf16>(300, 33, times);
    check_rows<f16>(300, 33, times);
    check_rows<float>(0, 5, times);
    check_rows<float>(3, 0, times);
  }
}

TEST_CASE("repeats that do not divide the rows are refused") {
  Pool pool;
  CHECK_THROWS_WITH_AS(ops::sum_repeats(Tensor<float, 2>::zeros(shape(7, 2), pool), 2),
                       "dspp: sum_repeats needs rows that the repeats divide, but got 7 and 2. Check the extents.",
                       Error);
}
