// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/rotary.hpp>
#include <dspp/ops/slice.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

/// Head by head and pair by pair, from the definition.
Tensor<double, 3> by_definition(const Tensor<double, 3>& x, Size head_dim, double theta, Size first) {
  auto y = laws::copy(x);
  const Size half = head_dim / 2;
  for (Size row = 0; row < x[0] * x[1]; ++row)
    for (Size h = 0; h < x[2]; h += head_dim)
      for (Size j = 0; j < half; ++j) {
        const double position = static_cast<double>(first + row % x[1]);
        const double angle = position * std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
        const double a = x.data()[row * x[2] + h + j], b = x.data()[row * x[2] + h + j + half];
        y.data()[row * x[2] + h + j] = a * std::cos(angle) - b * std::sin(angle);
        y.data()[row * x[2] + h + j + half] = b * std::cos(angle) + a * std::sin(angle);
      }
  return y;
}

template <class T>
struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    auto table = ops::rotary_table<T, D>(3, 5, 4, 10000, memory);
    auto x = Tensor<T, 3, D>::zeros(shape(2, 5, 16), memory);
    auto y = ops::rotary(x, table, 8);
    auto z = ops::rotary_vjp(std::move(y), table);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls<bf16>{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.flops_forward() == 3.0 * 2 * 5 * (8 + 16) &&
         ledger.peak_by_category()[Category::activations] == round_up(5 * 4 * 4, 64) + 2 * round_up(2 * 5 * 16 * 2, 64);
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("rotary rotates every pair by its position's angle") {
  Pool pool;
  for (const Size head_dim : {2, 6, 70})
    for (const double theta : {10000.0, 500000.0})
      for (const Size first : {0, 31, 1000}) {
        const auto x = laws::random<double>(shape(2, 40, 2 * head_dim), pool, 1);
        const auto table = ops::rotary_table<double, Cpu>(first, 40, head_dim, theta, pool);
        laws::check_close(ops::rotary(x, table), by_definition(x, head_dim, theta, first), 1e-12);
      }
}

TEST_CASE("a position's angles depend on the position alone") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    const auto x = laws::random<T>(shape(2, 100, 8), pool, 1);
    const auto whole = ops::rotary(x, ops::rotary_table<T, Cpu>(0, 100, 8, 1e4, pool));
    for (const Size first : {1, 31, 32, 50}) {
      const auto slice = ops::slice(x, 1, first, 45);
      CHECK(laws::same_bits(ops::rotary(slice, ops::rotary_table<T, Cpu>(first, 45, 8, 1e4, pool)),
                            ops::slice(whole, 1, first, 45)));
    }
  };
  check(0.0);
  check(0.0f);
  check(bf16());
}

TEST_CASE("rotary_vjp is the derivative: the rotation back") {
  Pool pool;
  const auto x = laws::random<double>(shape(2, 5, 12), pool, 1), dy = laws::random<double>(shape(2, 5, 12), pool, 2);
  const auto table = ops::rotary_table<double, Cpu>(7, 5, 4, 1e4, pool);
  for (const Size rotated : {0, 4, 8})
    laws::check_gradient(x, ops::rotary_vjp(dy, table, rotated),
                         [&] { return laws::dot(ops::rotary(x, table, rotated), dy); });
  laws::check_close(ops::rotary_vjp(ops::rotary(x, table), table), x, 1e-14);
}

TEST_CASE("elements that are not rotated are unchanged, in place and not") {
  Pool pool;
  const auto x = laws::random<bf16>(shape(2, 5, 2, 8), pool, 1);
  const auto table = ops::rotary_table<bf16, Cpu>(1, 5, 4, 1e4, pool);
  laws::check_in_place(x, [&](Tensor<bf16, 4> v) { return ops::rotary(std::move(v), table, 8); });
  const auto y = ops::rotary(x, table, 8);
  for (Size row = 0; row < 10; ++row) {
    CHECK(std::memcmp(y.data() + row * 16 + 8, x.data() + row * 16 + 8, 16) == 0);
    CHECK(std::memcmp(y.data() + row * 16, x.data() + row * 16, 16) != 0);
  }
}

TEST_CASE("rotary and its vjp in f32, bf16 and f16 follow f64") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    const auto x = laws::random<T>(shape(2, 300, 64), pool, 1);
    const auto table = ops::rotary_table<T, Cpu>(0, 300, 64, 1e4, pool);
    const auto exact = ops::rotary_table<double, Cpu>(0, 300, 64, 1e4, pool);
    // two products of rounded factors and a sum; |x| < 5
    const double bound = 5 * 3 * laws::rounding<float> + (sizeof(T) == 2 ? laws::rounding<T> : 0);
    laws::check_close(ops::rotary(x, table), ops::rotary(laws::copy(x), exact), bound);
    laws::check_close(ops::rotary_vjp(x, table), ops::rotary_vjp(laws::copy(x), exact), bound);
  };
  check(0.0f);
  check(bf16());
  check(f16());
}

TEST_CASE("threads change no bit of rotary") {
  Pool pool;
  const auto x = laws::random<float>(shape(8, 64, 512), pool, 1);
  const auto table = ops::rotary_table<float, Cpu>(0, 64, 64, 1e4, pool);
  laws::check_threads([&] { return ops::rotary(x, table); });
}

TEST_CASE("rotary makes the same allocations on paper") {
  laws::check_paper(Calls<float>{});
  laws::check_paper(Calls<bf16>{});
}

TEST_CASE("shapes that do not fit rotary are an error sentence") {
  Pool pool;
  CHECK_THROWS_WITH_AS((ops::rotary_table<float, Cpu>(0, 4, 3, 1e4, pool)),
                       "dspp: rotary needs heads of an even number of features, but they have 3. Change head_dim.",
                       Error);
  const auto table = ops::rotary_table<float, Cpu>(0, 4, 4, 1e4, pool);
  CHECK_THROWS_WITH_AS(ops::rotary(Tensor<float, 3>::zeros(shape(1, 4, 6), pool), table),
                       "dspp: rotary needs whole heads of 4 features, but it got 6 of the 6 elements of a position. "
                       "Choose a head_dim that divides them.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::rotary(Tensor<float, 3>::zeros(shape(1, 3, 8), pool), table),
                       "dspp: rotary needs a table of positions of 3 elements, but it has 4. Give one that fits the "
                       "other arguments.",
                       Error);
}
