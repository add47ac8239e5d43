// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/reduce.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto x = Tensor<bf16, 2, D>::zeros(shape(20, 50), memory);
    const auto total = ops::sum(x);
    const auto average = ops::mean(x);
    const auto dx = ops::sum_vjp<bf16>(x.shape(), total);
    const auto more = ops::mean_vjp<bf16>(x.shape(), average);
    const auto norm = ops::squared_norm(x);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.peak() == 3 * round_up(2000, 64) + 3 * 64 && ledger.flops_forward() == 4000;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("sum and mean have constant derivatives") {
  Pool pool;
  for (const Size n : {1, 3, 7, 17, 300}) {
    const auto x = laws::random<double>(shape(3, n), pool, 1);
    const auto dy = Scalar<double>::zeros(shape(), pool);
    *dy.data() = 1.3;
    laws::check_gradient(x, ops::sum_vjp<double>(x.shape(), dy), [&] { return 1.3 * *ops::sum(x).data(); });
    laws::check_gradient(x, ops::mean_vjp<double>(x.shape(), dy), [&] { return 1.3 * *ops::mean(x).data(); });
  }
}

TEST_CASE("a sum in f32 makes at most 40 roundings on the way to f64, however long it is") {
  Pool pool;
  for (const Size n : {1, 100, 1025, 16384, 1200000}) {
    auto x = laws::random<float>(shape(n), pool, 2);
    for (Size i = 0; i < n; ++i) x.data()[i] = std::abs(x.data()[i]);
    const auto exact = ops::sum(laws::copy(x));
    laws::check_close(ops::sum(x), exact, 41 * laws::rounding<float>);
    const auto narrow = laws::copy<bf16>(x);
    laws::check_close(ops::sum(narrow), ops::sum(laws::copy(narrow)), 41 * laws::rounding<float>);
  }
}

TEST_CASE("a squared norm is exact to f64 and neither overflows nor vanishes") {
  Pool pool;
  auto x = laws::random<float>(shape(100003), pool, 3);
  double expected = 0;
  for (Size i = 0; i < x.count(); ++i) expected += std::pow(static_cast<double>(x.data()[i]), 2);
  CHECK(ops::squared_norm(x).item() == doctest::Approx(expected).epsilon(1e-13));
  x.data()[0] = 1e38f;
  CHECK(ops::squared_norm(x).item() > 9.9e75);
  x.fill(1e-30f);
  CHECK(ops::squared_norm(x).item() == doctest::Approx(100003e-60).epsilon(1e-6));
  x.data()[99999] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(ops::squared_norm(x).item()));
  x.data()[99999] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(ops::squared_norm(x).item()));
}

TEST_CASE("sums have the same bits on any number of threads") {
  Pool pool;
  const auto x = laws::random<float>(shape(3000001), pool, 4);
  laws::check_threads([&] { return ops::sum(x); });
  laws::check_threads([&] { return ops::squared_norm(x); });
}

TEST_CASE("sums make the same allocations on paper") {
  laws::check_paper(Calls{});
}
