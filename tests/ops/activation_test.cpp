// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/activation.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

template <class F>
void check_functor(F f) {
  Pool pool;
  for (const Size n : {1, 3, 7, 17, 64, 100}) {
    const auto x = laws::random<double>(shape(3, n), pool, 1, 2.0), dy = laws::random<double>(shape(3, n), pool, 2);
    const auto dx = ops::apply_vjp(f, x, laws::copy(dy));
    laws::check_gradient(x, dx, [&] { return laws::dot(ops::apply(f, x), dy); });
  }
}

/// f32, bf16 and f16 against f64 of the same (rounded) inputs.
template <class T, class F>
void check_precision(F f, double bound) {
  Pool pool;
  const auto x = laws::random<T>(shape(1000), pool, 3, 3.0), dy = laws::random<T>(shape(1000), pool, 4);
  laws::check_close(ops::apply(f, x), ops::apply(f, laws::copy(x)), bound);
  laws::check_close(ops::apply_vjp(f, x, laws::copy<T>(dy)), ops::apply_vjp(f, laws::copy(x), laws::copy(dy)), bound);
}

template <class F>
void check_in_types(F f) {
  check_functor(f);
  check_precision<float>(f, 40 * laws::rounding<float>);
  check_precision<bf16>(f, laws::rounding<bf16> + 40 * laws::rounding<float>);
  check_precision<f16>(f, laws::rounding<f16> + 40 * laws::rounding<float>);
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    auto x = Tensor<bf16, 3, D>::zeros(shape(2, 3, 5), memory);
    auto y = ops::gelu(x, GeluForm::tanh);
    y = ops::gelu_vjp(x, GeluForm::exact, std::move(y));
    auto shared = y;
    y = ops::relu_vjp(x, shared);
    y = ops::silu_vjp(ops::relu(x), ops::silu(y));
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.peak() == 5 * 64 && ledger.flops_forward() == 30 * (8 + 14 + 1 + 1 + 4 + 8);
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("gelu's vjp is its derivative, and f32, bf16 and f16 follow f64") {
  check_in_types(pointwise::GeluExact{});
  check_in_types(pointwise::GeluTanh{});
}

TEST_CASE("silu's vjp is its derivative, and f32, bf16 and f16 follow f64") {
  check_in_types(pointwise::Silu{});
}

TEST_CASE("relu's vjp is its derivative away from 0, and 0 at 0") {
  check_in_types(pointwise::Relu{});
  CHECK(pointwise::Relu{}.derivative(0.0) == 0.0);
  CHECK(pointwise::Relu{}(-2.0f) == 0.0f);
}

TEST_CASE("both forms of gelu have the values of their definitions") {
  for (const double x : {-5.0, -1.0, 0.0, 0.5, 3.0}) {
    CHECK(pointwise::GeluExact{}(x) == doctest::Approx(x * 0.5 * std::erfc(-x / std::sqrt(2.0))).epsilon(1e-12));
    const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    CHECK(pointwise::GeluTanh{}(x) == doctest::Approx(0.5 * x * (1 + std::tanh(u))).epsilon(1e-12));
  }
}

TEST_CASE("activations take extreme values to their limits") {
  constexpr float large = 3e4f;
  CHECK(pointwise::GeluTanh{}(large) == large);
  CHECK(pointwise::GeluTanh{}(-large) == 0.0f);
  CHECK(pointwise::GeluExact{}(-large) == 0.0f);
  CHECK(pointwise::Silu{}(-large) == 0.0f);
  CHECK(pointwise::GeluTanh{}.derivative(-large) == 0.0f);
  CHECK(pointwise::GeluTanh{}.derivative(large) == 1.0f);
  CHECK(pointwise::Silu{}.derivative(-large) == 0.0f);
}

TEST_CASE("activations keep NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(pointwise::GeluTanh{}(nan)));
  CHECK(std::isnan(pointwise::GeluExact{}(nan)));
  CHECK(std::isnan(pointwise::Silu{}(nan)));
  CHECK(std::isnan(pointwise::Relu{}(nan)));
}

TEST_CASE("a vjp of an activation works in place when it may") {
  Pool pool;
  const auto x = laws::random<float>(shape(5, 7), pool, 5), dy = laws::random<float>(shape(5, 7), pool, 6);
  laws::check_in_place(dy, [&](Tensor<float, 2, Cpu> d) { return ops::gelu_vjp(x, GeluForm::tanh, std::move(d)); });
}

TEST_CASE("activations make the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("the number of threads and the place in a block change no bit of an activation") {
  Pool pool;
  const auto x = laws::random<float>(shape(70001), pool, 7);
  laws::check_threads([&] { return ops::gelu(x, GeluForm::exact); });
  const auto whole = ops::gelu(x, GeluForm::exact);
  const auto part = Tensor<float, 1, Cpu>::view(x.storage(), 13, shape(1003));
  const auto expected = Tensor<float, 1, Cpu>::view(whole.storage(), 13, shape(1003));
  CHECK(laws::same_bits(ops::gelu(part, GeluForm::exact), expected));
}

TEST_CASE("a vjp of shapes that do not fit is an error with the shapes") {
  Pool pool;
  const auto x = laws::random<float>(shape(2, 3), pool, 8), dy = laws::random<float>(shape(3, 2), pool, 9);
  CHECK_THROWS_WITH_AS(ops::silu_vjp(x, dy),
                       "dspp: silu needs two tensors of one shape, but they are [2, 3] and [3, 2]. Reshape or "
                       "broadcast one of them first.",
                       Error);
}
