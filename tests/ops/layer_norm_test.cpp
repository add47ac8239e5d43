// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/layer_norm.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

template <class T>
using Row = Tensor<T, 1, Cpu>;

struct Gradients {
  Row<double> gamma, beta;
};

template <class T>
Tensor<double, 2, Cpu> vjp(const Tensor<T, 2, Cpu>& x, const Row<T>& gamma, const Row<T>& beta,
                           const Tensor<T, 2, Cpu>& dy, const Gradients& into,
                           const Tensor<T, 2, Cpu>& earlier = Tensor<T, 2, Cpu>()) {
  const auto forward = ops::layer_norm(x, gamma, beta, 1e-5);
  return laws::copy(ops::layer_norm_vjp(x, gamma, forward.mean, forward.rstd, laws::copy<T>(dy), into.gamma,
                                        Write::overwrite, into.beta, Write::overwrite, earlier));
}

Gradients gradients(Size n, Pool& pool) {
  return {Row<double>::zeros(shape(n), pool), Row<double>::zeros(shape(n), pool)};
}

/// The forward and backward pass in T against f64 of the same inputs. A row's mean and deviation are sums of n terms in
/// 32 lanes, 20 roundings deep at most here, and enter y through a handful of products.
template <class T>
void check_precision(double roundings) {
  Pool pool;
  const Size rows = 50, n = 100;
  const auto x = laws::random<T>(shape(rows, n), pool, 1, 2.0), dy = laws::random<T>(shape(rows, n), pool, 2);
  const auto gamma = laws::random<T>(shape(n), pool, 3), beta = laws::random<T>(shape(n), pool, 4);
  const auto x64 = laws::copy(x), dy64 = laws::copy(dy);
  const auto gamma64 = laws::copy(gamma), beta64 = laws::copy(beta);
  const double bound = roundings * laws::rounding<float> + (sizeof(T) == 2 ? laws::rounding<T> : 0);
  const auto forward = ops::layer_norm(x, gamma, beta, 1e-5);
  const auto forward64 = ops::layer_norm(x64, gamma64, beta64, 1e-5);
  laws::check_close(forward.y, forward64.y, bound);
  const Gradients got = gradients(n, pool), expected = gradients(n, pool);
  laws::check_close(vjp(x, gamma, beta, dy, got), vjp(x64, gamma64, beta64, dy64, expected), bound);
  laws::check_close(got.gamma, expected.gamma, roundings * laws::rounding<float>);
  laws::check_close(got.beta, expected.beta, roundings * laws::rounding<float>);
}

/// dx + earlier in T against f64's dx + earlier of the same inputs, also where they nearly cancel: a dx rounded to T
/// before it is added would be seen there.
template <class T>
void check_sum(double roundings) {
  Pool pool;
  const Size rows = 50, n = 100;
  const auto x = laws::random<T>(shape(rows, n), pool, 1, 2.0), dy = laws::random<T>(shape(rows, n), pool, 2);
  const auto gamma = laws::random<T>(shape(n), pool, 3);
  const auto earlier = laws::random<T>(shape(rows, n), pool, 5);
  const Gradients got = gradients(n, pool), expected = gradients(n, pool), alone = gradients(n, pool);
  const auto sum = vjp(laws::copy(x), laws::copy(gamma), laws::copy(gamma), laws::copy(dy), expected);
  ops::add_into(sum, laws::copy(earlier));
  const double compute = roundings * laws::rounding<Compute<T>>;
  laws::check_close(vjp(x, gamma, gamma, dy, got, earlier), sum, compute + (sizeof(T) == 2 ? laws::rounding<T> : 0),
                    0.1);
  vjp(x, gamma, gamma, dy, alone);
  CHECK(laws::same_bits(got.gamma, alone.gamma));
  CHECK(laws::same_bits(got.beta, alone.beta));
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto x = Tensor<bf16, 3, D>::zeros(shape(4, 50, 8), memory);
    const auto gamma = Tensor<bf16, 1, D>::zeros(shape(8), memory, Category::parameters);
    const auto gradient = Tensor<float, 1, D>::zeros(shape(8), memory, Category::gradients);
    auto forward = ops::layer_norm(x, gamma, gamma, 1e-5);
    auto dx = ops::layer_norm_vjp(x, gamma, forward.mean, forward.rstd, std::move(forward.y), gradient,
                                  Write::overwrite, gradient, Write::accumulate);
    const auto sum = ops::layer_norm_vjp(x, gamma, forward.mean, forward.rstd, x, gradient, Write::overwrite, gradient,
                                         Write::accumulate, std::move(dx));
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  // 200 rows in pieces of 16: 13 pieces of [2, 8] floats.
  return ledger.live() == 0 && ledger.peak_by_category()[Category::workspace] == 13 * 2 * 8 * 4 &&
         ledger.peak_by_category()[Category::activations] == 2 * (4 * 50 * 8 * 2) + 2 * round_up(200 * 4, 64) &&
         ledger.flops_forward() == (8.0 + 16 + 17) * 4 * 50 * 8;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("layer_norm's vjp is the derivative by x, gamma and beta") {
  Pool pool;
  for (const Size n : {2, 3, 7, 17, 70}) {
    const auto x = laws::random<double>(shape(5, n), pool, 1, 2.0), dy = laws::random<double>(shape(5, n), pool, 2);
    const auto gamma = laws::random<double>(shape(n), pool, 3), beta = laws::random<double>(shape(n), pool, 4);
    const Gradients into = gradients(n, pool);
    const auto dx = vjp(x, gamma, beta, dy, into);
    const auto value = [&] { return laws::dot(ops::layer_norm(x, gamma, beta, 1e-5).y, dy); };
    laws::check_gradient(x, dx, value);
    laws::check_gradient(gamma, into.gamma, value);
    laws::check_gradient(beta, into.beta, value);
  }
}

TEST_CASE("layer_norm of one element is beta, and its dx is 0") {
  Pool pool;
  const auto x = laws::random<double>(shape(3, 1), pool, 1), gamma = laws::random<double>(shape(1, 1), pool, 2);
  const auto forward = ops::layer_norm(x, gamma.reshape(shape(1)), gamma.reshape(shape(1)), 1e-5);
  for (Size i = 0; i < 3; ++i) CHECK(forward.y.data()[i] == gamma.data()[0]);
  const Gradients into = gradients(1, pool);
  const auto dx = vjp(x, gamma.reshape(shape(1)), gamma.reshape(shape(1)), x, into);
  for (Size i = 0; i < 3; ++i) CHECK(dx.data()[i] == 0.0);
}

TEST_CASE("a normalised row has mean 0 and variance 1 even far from the origin") {
  Pool pool;
  auto x = laws::random<float>(shape(4, 384), pool, 5);
  for (Size i = 0; i < x.count(); ++i) x.data()[i] += 1000;
  auto one = Row<float>::zeros(shape(384), pool), zero = Row<float>::zeros(shape(384), pool);
  one.fill(1);
  const auto y = ops::layer_norm(x, one, zero, 0).y;
  for (Size row = 0; row < 4; ++row) {
    double sum = 0, squares = 0;
    for (Size j = 0; j < 384; ++j) {
      sum += static_cast<double>(y.data()[row * 384 + j]);
      squares += std::pow(static_cast<double>(y.data()[row * 384 + j]), 2);
    }
    CHECK(std::abs(sum / 384) < 1e-3);  // an x of 1000 is known to 3e-5 of its deviation
    CHECK(std::abs(squares / 384 - 1) < 1e-3);
  }
}

TEST_CASE("layer_norm in f32, bf16 and f16 follows f64") {
  check_precision<float>(200);
  check_precision<bf16>(200);
  check_precision<f16>(200);
}

TEST_CASE("layer_norm_vjp adds dx to an earlier gradient and rounds once") {
  check_sum<double>(200);
  check_sum<float>(200);
  check_sum<bf16>(200);
  check_sum<f16>(200);
}

TEST_CASE("dgamma and dbeta are accumulated with Write::accumulate") {
  Pool pool;
  const auto x = laws::random<double>(shape(40, 6), pool, 6), dy = laws::random<double>(shape(40, 6), pool, 7);
  const auto gamma = laws::random<double>(shape(6), pool, 8);
  const auto forward = ops::layer_norm(x, gamma, gamma, 1e-5);
  const Gradients once = gradients(6, pool), twice = gradients(6, pool);
  vjp(x, gamma, gamma, dy, once);
  for (const Write write : {Write::overwrite, Write::accumulate})
    ops::layer_norm_vjp(x, gamma, forward.mean, forward.rstd, laws::copy(dy), twice.gamma, write, twice.beta, write);
  for (Size j = 0; j < 6; ++j) {
    CHECK(twice.gamma.data()[j] == doctest::Approx(2 * once.gamma.data()[j]).epsilon(1e-12));
    CHECK(twice.beta.data()[j] == doctest::Approx(2 * once.beta.data()[j]).epsilon(1e-12));
  }
}

TEST_CASE("layer_norm_vjp works in place when it may, with the same bits on any number of threads") {
  Pool pool;
  const auto x = laws::random<float>(shape(700, 40), pool, 9), dy = laws::random<float>(shape(700, 40), pool, 10);
  const auto gamma = laws::random<float>(shape(40), pool, 11);
  const auto forward = ops::layer_norm(x, gamma, gamma, 1e-5);
  auto dgamma = Row<float>::zeros(shape(40), pool), dbeta = Row<float>::zeros(shape(40), pool);
  const auto op = [&](Tensor<float, 2, Cpu> d, Tensor<float, 2, Cpu> earlier = {}) {
    return ops::layer_norm_vjp(x, gamma, forward.mean, forward.rstd, std::move(d), dgamma, Write::overwrite, dbeta,
                               Write::overwrite, std::move(earlier));
  };
  laws::check_in_place(dy, op);
  laws::check_in_place_of_two(dy, laws::random<float>(dy.shape(), pool, 12), op);
  laws::check_threads([&] { return op(dy, x); });
  laws::check_threads([&] { return op(dy); });
  laws::check_threads([&] {
    op(dy);
    return laws::copy<float>(dgamma);
  });
  laws::check_threads([&] { return ops::layer_norm(x, gamma, gamma, 1e-5).y; });
}

TEST_CASE("layer_norm makes the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("an argument that does not fit layer_norm is an error with its name") {
  Pool pool;
  const auto x = laws::random<float>(shape(2, 3), pool, 12);
  const auto three = laws::random<float>(shape(3), pool, 13), four = laws::random<float>(shape(4), pool, 14);
  const char* rest = " of 3 elements, but it has 4. Give one that fits the other arguments.";
  CHECK_THROWS_WITH_AS(ops::layer_norm(x, four, three, 1e-5),
                       (std::string("dspp: layer_norm needs a gamma") + rest).c_str(), Error);
  CHECK_THROWS_WITH_AS(ops::layer_norm(x, three, four, 1e-5),
                       (std::string("dspp: layer_norm needs a beta") + rest).c_str(), Error);
  const auto two = laws::random<float>(shape(2), pool, 15);
  CHECK_THROWS_WITH_AS(ops::layer_norm_vjp(x, three, two, two, x, four, Write::overwrite, three, Write::overwrite),
                       (std::string("dspp: layer_norm_vjp needs a target for dgamma") + rest).c_str(), Error);
  CHECK_THROWS_WITH_AS(ops::layer_norm_vjp(x, three, two, two, x, three, Write::overwrite, four, Write::overwrite),
                       (std::string("dspp: layer_norm_vjp needs a target for dbeta") + rest).c_str(), Error);
  CHECK_THROWS_WITH_AS(
      ops::layer_norm_vjp(x, three, three, two, x, three, Write::overwrite, three, Write::overwrite),
      "dspp: layer_norm_vjp needs a mean of 2 elements, but it has 3. Give one that fits the other arguments.", Error);
  CHECK_THROWS_WITH_AS(ops::layer_norm_vjp(x, three, two, three, x, three, Write::overwrite, three, Write::overwrite),
                       "dspp: layer_norm_vjp needs an rstd of 2 elements, but it has 3. Give one that "
                       "fits the other arguments.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::layer_norm_vjp(x, three, two, two, x, three, Write::overwrite, three, Write::overwrite,
                                           laws::random<float>(shape(3, 2), pool, 16)),
                       "dspp: layer_norm_vjp needs two tensors of one shape, but they are [2, 3] and [3, 2]. Reshape "
                       "or broadcast one of them first.",
                       Error);
}
