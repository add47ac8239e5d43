// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/softmax.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

/// y has exp of a difference (|x - max| < 20 is itself rounded: 20 units) over a sum of n <= 100 terms in 32 lanes.
template <class T>
void check_precision() {
  Pool pool;
  const auto x = laws::random<T>(shape(20, 100), pool, 1, 3.0), dy = laws::random<T>(shape(20, 100), pool, 2);
  const double bound = 40 * laws::rounding<float> + (sizeof(T) == 2 ? laws::rounding<T> : 0);
  const auto y = ops::softmax(x);
  laws::check_close(y, ops::softmax(laws::copy(x)), bound,
                    std::is_same_v<T, f16> ? 0x1p-14 : 1e-30);  // below, f16 has ever fewer digits
  laws::check_close(ops::softmax_vjp(y, laws::copy<T>(dy)), ops::softmax_vjp(laws::copy(y), laws::copy(dy)), bound);
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto x = Tensor<bf16, 3, D>::zeros(shape(2, 3, 5), memory);
    const auto y = ops::softmax(x);
    const auto dx = ops::softmax_vjp(y, ops::softmax(x));
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.peak() == 3 * 64 && ledger.flops_forward() == 30 * 14;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("softmax's vjp is its derivative") {
  Pool pool;
  for (const Size n : {1, 3, 7, 17, 50}) {
    const auto x = laws::random<double>(shape(3, n), pool, 1), dy = laws::random<double>(shape(3, n), pool, 2);
    const auto dx = ops::softmax_vjp(ops::softmax(x), laws::copy(dy));
    laws::check_gradient(x, dx, [&] { return laws::dot(ops::softmax(x), dy); });
  }
}

TEST_CASE("a row of softmax sums to 1, whatever is added to it, and minus infinity gives 0") {
  Pool pool;
  auto x = laws::random<float>(shape(2, 37), pool, 3);
  for (Size j = 0; j < 37; ++j) x.data()[37 + j] = x.data()[j] + 1e4f;
  x.data()[5] = -std::numeric_limits<float>::infinity();
  const auto y = ops::softmax(x);
  CHECK(y.data()[5] == 0.0f);
  for (Size row = 0; row < 2; ++row) {
    double sum = 0;
    for (Size j = 0; j < 37; ++j) sum += static_cast<double>(y.data()[row * 37 + j]);
    CHECK(std::abs(sum - 1) < 40 * laws::rounding<float>);
  }
}

TEST_CASE("softmax keeps NaN") {
  Pool pool;
  auto x = laws::random<float>(shape(1, 9), pool, 4);
  x.data()[3] = std::numeric_limits<float>::quiet_NaN();
  const auto y = ops::softmax(x);
  for (Size j = 0; j < 9; ++j) CHECK(std::isnan(y.data()[j]));
}

TEST_CASE("softmax in f32, bf16 and f16 follows f64") {
  check_precision<float>();
  check_precision<bf16>();
  check_precision<f16>();
}

TEST_CASE("softmax_vjp works in place when it may, with the same bits on any number of threads") {
  Pool pool;
  const auto y = ops::softmax(laws::random<float>(shape(900, 70), pool, 5));
  const auto dy = laws::random<float>(shape(900, 70), pool, 6);
  laws::check_in_place(dy, [&](Tensor<float, 2, Cpu> d) { return ops::softmax_vjp(y, std::move(d)); });
  laws::check_threads([&] { return ops::softmax_vjp(y, dy); });
  laws::check_threads([&] { return ops::softmax(dy); });
}

TEST_CASE("softmax makes the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("shapes that do not fit softmax_vjp are an error with the shapes") {
  Pool pool;
  const auto y = laws::random<float>(shape(2, 3), pool, 7), dy = laws::random<float>(shape(2, 4), pool, 8);
  CHECK_THROWS_WITH_AS(ops::softmax_vjp(y, dy),
                       "dspp: softmax_vjp needs two tensors of one shape, but they are [2, 3] and [2, 4]. Reshape or "
                       "broadcast one of them first.",
                       Error);
}
