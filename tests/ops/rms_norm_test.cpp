// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/rms_norm.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

template <class T>
using Row = Tensor<T, 1, Cpu>;

template <class T>
Tensor<double, 2, Cpu> vjp(const Tensor<T, 2, Cpu>& x, const Row<T>& gamma, const Tensor<T, 2, Cpu>& dy,
                           const Row<double>& into, const Tensor<T, 2, Cpu>& earlier = Tensor<T, 2, Cpu>()) {
  const auto forward = ops::rms_norm(x, gamma, 1e-5);
  return laws::copy(
      ops::rms_norm_vjp(x, gamma, forward.inverse_root, laws::copy<T>(dy), into, Write::overwrite, earlier));
}

/// The forward and backward pass in T against f64 of the same inputs, as layer_norm's.
template <class T>
void check_precision(double roundings) {
  Pool pool;
  const Size rows = 50, n = 100;
  const auto x = laws::random<T>(shape(rows, n), pool, 1, 2.0), dy = laws::random<T>(shape(rows, n), pool, 2);
  const auto gamma = laws::random<T>(shape(n), pool, 3);
  const auto x64 = laws::copy(x), dy64 = laws::copy(dy);
  const auto gamma64 = laws::copy(gamma);
  const double bound = roundings * laws::rounding<float> + (sizeof(T) == 2 ? laws::rounding<T> : 0);
  laws::check_close(ops::rms_norm(x, gamma, 1e-5).y, ops::rms_norm(x64, gamma64, 1e-5).y, bound);
  const auto got = Row<double>::zeros(shape(n), pool), expected = Row<double>::zeros(shape(n), pool);
  laws::check_close(vjp(x, gamma, dy, got), vjp(x64, gamma64, dy64, expected), bound);
  laws::check_close(got, expected, roundings * laws::rounding<float>);
}

/// dx + earlier in T against f64, as layer_norm's.
template <class T>
void check_sum(double roundings) {
  Pool pool;
  const Size rows = 50, n = 100;
  const auto x = laws::random<T>(shape(rows, n), pool, 1, 2.0), dy = laws::random<T>(shape(rows, n), pool, 2);
  const auto gamma = laws::random<T>(shape(n), pool, 3);
  const auto earlier = laws::random<T>(shape(rows, n), pool, 5);
  const auto into = [&] { return Row<double>::zeros(shape(n), pool); };
  const Row<double> got = into(), alone = into();
  const auto sum = vjp(laws::copy(x), laws::copy(gamma), laws::copy(dy), into());
  ops::add_into(sum, laws::copy(earlier));
  const double compute = roundings * laws::rounding<Compute<T>>;
  laws::check_close(vjp(x, gamma, dy, got, earlier), sum, compute + (sizeof(T) == 2 ? laws::rounding<T> : 0), 0.1);
  vjp(x, gamma, dy, alone);
  CHECK(laws::same_bits(got, alone));
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto x = Tensor<bf16, 3, D>::zeros(shape(4, 50, 8), memory);
    const auto gamma = Tensor<bf16, 1, D>::zeros(shape(8), memory, Category::parameters);
    const auto gradient = Tensor<float, 1, D>::zeros(shape(8), memory, Category::gradients);
    auto forward = ops::rms_norm(x, gamma, 1e-5);
    auto dx = ops::rms_norm_vjp(x, gamma, forward.inverse_root, std::move(forward.y), gradient, Write::overwrite);
    const auto sum = ops::rms_norm_vjp(x, gamma, forward.inverse_root, x, gradient, Write::overwrite, std::move(dx));
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  // 200 rows in pieces of 16: 13 pieces of 8 floats.
  return ledger.live() == 0 && ledger.peak_by_category()[Category::workspace] == round_up(13 * 8 * 4, 64) &&
         ledger.peak_by_category()[Category::activations] == 2 * (4 * 50 * 8 * 2) + round_up(200 * 4, 64) &&
         ledger.flops_forward() == (4.0 + 11 + 12) * 4 * 50 * 8;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("rms_norm's vjp is the derivative by x and gamma") {
  Pool pool;
  for (const Size n : {1, 2, 3, 7, 17, 70}) {
    const auto x = laws::random<double>(shape(5, n), pool, 1, 2.0), dy = laws::random<double>(shape(5, n), pool, 2);
    const auto gamma = laws::random<double>(shape(n), pool, 3);
    const auto into = Row<double>::zeros(shape(n), pool);
    const auto dx = vjp(x, gamma, dy, into);
    const auto value = [&] { return laws::dot(ops::rms_norm(x, gamma, 1e-5).y, dy); };
    laws::check_gradient(x, dx, value);
    laws::check_gradient(gamma, into, value);
  }
}

TEST_CASE("rms_norm is x over the root of its mean square: the mean stays") {
  Pool pool;
  auto x = laws::random<double>(shape(3, 40), pool, 5);
  for (Size i = 0; i < x.count(); ++i) x.data()[i] += 3;
  const auto gamma = laws::random<double>(shape(40), pool, 6);
  const auto y = ops::rms_norm(x, gamma, 0.25).y;
  for (Size row = 0; row < 3; ++row) {
    double squares = 0;
    for (Size j = 0; j < 40; ++j) squares += x.data()[row * 40 + j] * x.data()[row * 40 + j];
    for (Size j = 0; j < 40; ++j)
      CHECK(y.data()[row * 40 + j] ==
            doctest::Approx(x.data()[row * 40 + j] / std::sqrt(squares / 40 + 0.25) * gamma.data()[j]).epsilon(1e-14));
  }
}

TEST_CASE("rms_norm in f32, bf16 and f16 follows f64") {
  check_precision<float>(200);
  check_precision<bf16>(200);
  check_precision<f16>(200);
}

TEST_CASE("rms_norm_vjp adds dx to an earlier gradient and rounds once") {
  check_sum<double>(200);
  check_sum<float>(200);
  check_sum<bf16>(200);
  check_sum<f16>(200);
}

TEST_CASE("rms_norm's dgamma is accumulated with Write::accumulate") {
  Pool pool;
  const auto x = laws::random<double>(shape(40, 6), pool, 6), dy = laws::random<double>(shape(40, 6), pool, 7);
  const auto gamma = laws::random<double>(shape(6), pool, 8);
  const auto forward = ops::rms_norm(x, gamma, 1e-5);
  const auto once = Row<double>::zeros(shape(6), pool), twice = Row<double>::zeros(shape(6), pool);
  vjp(x, gamma, dy, once);
  for (const Write write : {Write::overwrite, Write::accumulate})
    ops::rms_norm_vjp(x, gamma, forward.inverse_root, laws::copy(dy), twice, write);
  for (Size j = 0; j < 6; ++j) CHECK(twice.data()[j] == doctest::Approx(2 * once.data()[j]).epsilon(1e-12));
}

TEST_CASE("rms_norm_vjp works in place when it may, with the same bits on any number of threads") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    const auto x = laws::random<T>(shape(700, 40), pool, 9), dy = laws::random<T>(shape(700, 40), pool, 10);
    const auto gamma = laws::random<T>(shape(40), pool, 11);
    const auto forward = ops::rms_norm(x, gamma, 1e-5);
    auto dgamma = Row<float>::zeros(shape(40), pool);
    const auto op = [&](Tensor<T, 2, Cpu> d, Tensor<T, 2, Cpu> earlier = {}) {
      return ops::rms_norm_vjp(x, gamma, forward.inverse_root, std::move(d), dgamma, Write::overwrite,
                               std::move(earlier));
    };
    laws::check_in_place(dy, op);
    laws::check_in_place_of_two(dy, laws::random<T>(dy.shape(), pool, 12), op);
    laws::check_threads([&] { return op(dy, x); });
    laws::check_threads([&] { return op(dy); });
    laws::check_threads([&] {
      op(dy);
      return laws::copy<float>(dgamma);
    });
    laws::check_threads([&] { return ops::rms_norm(x, gamma, 1e-5).y; });
  };
  check(0.0f);
  check(bf16());
}

TEST_CASE("rms_norm makes the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("an argument that does not fit rms_norm is an error with its name") {
  Pool pool;
  const auto x = laws::random<float>(shape(2, 3), pool, 12);
  const auto two = laws::random<float>(shape(2), pool, 13), three = laws::random<float>(shape(3), pool, 14);
  CHECK_THROWS_WITH_AS(ops::rms_norm(x, two, 1e-5),
                       "dspp: rms_norm needs a gamma of 3 elements, but it has 2. Give one that fits the other "
                       "arguments.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::rms_norm_vjp(x, three, two, x, two, Write::overwrite),
                       "dspp: rms_norm_vjp needs a target for dgamma of 3 elements, but it has 2. Give one that fits "
                       "the other arguments.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::rms_norm_vjp(x, three, three, x, three, Write::overwrite),
                       "dspp: rms_norm_vjp needs an inverse root of 2 elements, but it has 3. Give one that fits the "
                       "other arguments.",
                       Error);
  CHECK_THROWS_WITH_AS(
      ops::rms_norm_vjp(x, three, two, x, three, Write::overwrite, laws::random<float>(shape(3, 2), pool, 15)),
      "dspp: rms_norm_vjp needs two tensors of one shape, but they are [2, 3] and [3, 2]. Reshape or "
      "broadcast one of them first.",
      Error);
}
