// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/arithmetic.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto x = Tensor<bf16, 2, D>::zeros(shape(6, 5), memory);
    const auto bias = Tensor<bf16, 1, D>::zeros(shape(5), memory, Category::parameters);
    const auto gradient = Tensor<float, 1, D>::zeros(shape(5), memory, Category::gradients);
    auto y = ops::add(x, ops::mul(x, x));
    y = ops::scale(std::move(y), 2.0);
    ops::add_into(y, x);
    y = ops::add_bias(y, bias);
    ops::sum_rows_into(gradient, Write::accumulate, y);
    const auto wide = ops::cast<float>(y, Category::optimizer);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.peak_by_category()[Category::optimizer] == 128;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("add, mul, scale and add_bias have the vjps that they name") {
  Pool pool;
  for (const Size n : {1, 3, 7, 17, 40}) {
    const auto x = laws::random<double>(shape(3, n), pool, 1), y = laws::random<double>(shape(3, n), pool, 2);
    const auto dy = laws::random<double>(shape(3, n), pool, 3);
    const auto bias = laws::random<double>(shape(n), pool, 4);
    laws::check_gradient(x, dy, [&] { return laws::dot(ops::add(x, y), dy); });
    laws::check_gradient(y, dy, [&] { return laws::dot(ops::add(x, y), dy); });
    laws::check_gradient(x, ops::mul(dy, y), [&] { return laws::dot(ops::mul(x, y), dy); });
    laws::check_gradient(y, ops::mul(dy, x), [&] { return laws::dot(ops::mul(x, y), dy); });
    laws::check_gradient(x, ops::scale(dy, -1.5), [&] { return laws::dot(ops::scale(x, -1.5), dy); });
    laws::check_gradient(x, dy, [&] { return laws::dot(ops::add_bias(x, bias), dy); });
    auto dbias = Tensor<double, 1, Cpu>::zeros(shape(n), pool);
    ops::sum_rows_into(dbias, Write::overwrite, dy);
    laws::check_gradient(bias, dbias, [&] { return laws::dot(ops::add_bias(x, bias), dy); });
  }
}

TEST_CASE("sums and products of bf16 and f16 are those of f32, rounded once") {
  const auto check = []<class T>(T) {
    Pool pool;
    const auto x = laws::random<T>(shape(9, 33), pool, 1), y = laws::random<T>(shape(9, 33), pool, 2);
    const auto sum = ops::add(x, y), product = ops::mul(x, y), third = ops::scale(x, 1.0 / 3);
    for (Size i = 0; i < x.count(); ++i) {
      const float a = x.data()[i], b = y.data()[i];
      CHECK(sum.data()[i].bits == T(a + b).bits);
      CHECK(product.data()[i].bits == T(a * b).bits);
      CHECK(third.data()[i].bits == T(a * static_cast<float>(1.0 / 3)).bits);
    }
  };
  check(bf16());
  check(f16());
}

TEST_CASE("add_into adds bf16 into f32 and into itself, with any number of handles") {
  Pool pool;
  const auto y = laws::random<bf16>(shape(50), pool, 3);
  const auto into = laws::random<float>(shape(50), pool, 4), before = laws::copy<float>(into), held = into;
  ops::add_into(into, y);
  for (Size i = 0; i < 50; ++i) CHECK(held.data()[i] == before.data()[i] + static_cast<float>(y.data()[i]));
  ops::add_into(into, into);
  for (Size i = 0; i < 50; ++i) CHECK(into.data()[i] == 2 * (before.data()[i] + static_cast<float>(y.data()[i])));
}

TEST_CASE("the gradient of a bias is summed in f32: its error grows with 64 + rows / 64 roundings, not with rows") {
  Pool pool;
  const Size rows = 5000, n = 33;
  auto x = laws::random<float>(shape(rows, n), pool, 5);
  for (Size i = 0; i < x.count(); ++i) x.data()[i] = std::abs(x.data()[i]);
  const auto sums = Tensor<double, 1, Cpu>::zeros(shape(n), pool);
  ops::sum_rows_into(sums, Write::overwrite, laws::copy(x));
  auto got = Tensor<float, 1, Cpu>::zeros(shape(n), pool);
  ops::sum_rows_into(got, Write::overwrite, x);
  laws::check_close(got, sums, (64 + rows / 64 + 1) * laws::rounding<float>);
  ops::sum_rows_into(got, Write::accumulate, x);
  laws::check_close(got, ops::scale(sums, 2.0), (64 + rows / 64 + 2) * laws::rounding<float>);
  laws::check_threads([&] {
    auto result = Tensor<float, 1, Cpu>::zeros(shape(n), pool);
    ops::sum_rows_into(result, Write::overwrite, x);
    return result;
  });
}

TEST_CASE("cast rounds to nearest even and back without loss") {
  Pool pool;
  const auto x = laws::random<float>(shape(3, 100), pool, 6);
  const auto check = [&]<class T>(T) {
    const auto narrow = ops::cast<T>(x);
    for (Size i = 0; i < x.count(); ++i) CHECK(narrow.data()[i].bits == T(x.data()[i]).bits);
    CHECK(laws::same_bits(ops::cast<T>(ops::cast<double>(narrow)), narrow));
  };
  check(bf16());
  check(f16());
}

TEST_CASE("cast to bf16 and f16 rounds every kind of float as these themselves do, NaN and infinity included") {
  Pool pool;
  auto x = Tensor<float, 2, Cpu>::uninitialized(shape(65536, 5), pool);
  for (std::uint32_t upper = 0; upper < 65536; ++upper)
    for (std::uint32_t k = 0; k < 5; ++k) {
      constexpr std::uint32_t lower[5] = {0, 1, 0x7fff, 0x8000, 0x8001};
      x.data()[5 * upper + k] = bits_as<float>(upper << 16 | lower[k]);
    }
  const auto check = [&]<class T>(T) {
    const auto narrow = ops::cast<T>(x);
    Size wrong = 0;
    for (Size i = 0; i < x.count(); ++i) wrong += narrow.data()[i].bits != T(x.data()[i]).bits;
    CHECK(wrong == 0);
  };
  check(bf16());
  check(f16());
}

TEST_CASE("scale works in place when it may") {
  Pool pool;
  const auto x = laws::random<bf16>(shape(41), pool, 7);
  laws::check_in_place(x, [](Tensor<bf16, 1, Cpu> t) { return ops::scale(std::move(t), 0.5); });
}

TEST_CASE("sums and products make the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("sums and products of shapes that do not fit are errors with the shapes") {
  Pool pool;
  const auto x = laws::random<float>(shape(2, 3), pool, 8), y = laws::random<float>(shape(3, 2), pool, 9);
  const auto bias = laws::random<float>(shape(4), pool, 10);
  const char* rest =
      " needs two tensors of one shape, but they are [2, 3] and [3, 2]. Reshape or broadcast one of them first.";
  CHECK_THROWS_WITH_AS(ops::add(x, y), (std::string("dspp: add") + rest).c_str(), Error);
  CHECK_THROWS_WITH_AS(ops::mul(x, y), (std::string("dspp: mul") + rest).c_str(), Error);
  CHECK_THROWS_WITH_AS(ops::add_into(x, y), (std::string("dspp: add_into") + rest).c_str(), Error);
  CHECK_THROWS_WITH_AS(
      ops::add_bias(x, bias),
      "dspp: add_bias needs a bias of 3 elements, but it has 4. Give one that fits the other arguments.", Error);
  CHECK_THROWS_WITH_AS(
      ops::sum_rows_into(bias, Write::overwrite, x),
      "dspp: sum_rows_into needs a target of 3 elements, but it has 4. Give one that fits the other arguments.", Error);
}
