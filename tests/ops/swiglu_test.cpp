// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/activation.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/slice.hpp>
#include <dspp/ops/swiglu.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

template <class T>
struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    auto x = Tensor<T, 3, D>::zeros(shape(2, 5, 16), memory);
    auto y = ops::swiglu(x);
    auto dx = ops::swiglu_vjp(x, y);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls<bf16>{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.flops_forward() == (5.0 + 13.0) * 2 * 5 * 8 &&
         ledger.peak_by_category()[Category::activations] == 2 * round_up(320, 64) + round_up(160, 64);
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("swiglu is silu of the first half times the second") {
  Pool pool;
  for (const Size n : {1, 7, 32, 50}) {
    const auto x = laws::random<double>(shape(3, 2 * n), pool, 1, 2.0);
    const auto halves = ops::split<2>(x, 1);
    laws::check_close(ops::swiglu(x), ops::mul(ops::silu(halves[0]), halves[1]), 1e-15);
  }
}

TEST_CASE("swiglu's vjp is the derivative by both halves") {
  Pool pool;
  for (const Size n : {1, 7, 40}) {
    const auto x = laws::random<double>(shape(2, 2, 2 * n), pool, 1, 2.0);
    const auto dy = laws::random<double>(shape(2, 2, n), pool, 2);
    laws::check_gradient(x, ops::swiglu_vjp(x, dy), [&] { return laws::dot(ops::swiglu(x), dy); });
  }
}

TEST_CASE("swiglu in f32, bf16 and f16 follows f64, far from 0 too") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    const auto x = laws::random<T>(shape(50, 2000), pool, 1, 20.0), dy = laws::random<T>(shape(50, 1000), pool, 2);
    const double bound = 20 * laws::rounding<float> + (sizeof(T) == 2 ? laws::rounding<T> : 0);
    laws::check_close(ops::swiglu(x), ops::swiglu(laws::copy(x)), bound);
    // |a| up to 100 multiplies what the logistic function rounds, |b dy| what comes of it
    laws::check_close(ops::swiglu_vjp(x, dy), ops::swiglu_vjp(laws::copy(x), laws::copy(dy)), bound,
                      sizeof(T) == 2 ? 10.0 : 100.0);
  };
  check(0.0f);
  check(bf16());
  check(f16());
}

TEST_CASE("threads change no bit of swiglu") {
  Pool pool;
  const auto x = laws::random<float>(shape(300, 200), pool, 1), dy = laws::random<float>(shape(300, 100), pool, 2);
  laws::check_threads([&] { return ops::swiglu(x); });
  laws::check_threads([&] { return ops::swiglu_vjp(x, dy); });
}

TEST_CASE("swiglu makes the same allocations on paper") {
  laws::check_paper(Calls<float>{});
  laws::check_paper(Calls<bf16>{});
}

TEST_CASE("an odd number of features is an error sentence of swiglu") {
  Pool pool;
  CHECK_THROWS_WITH_AS(ops::swiglu(Tensor<float, 2>::zeros(shape(2, 5), pool)),
                       "dspp: swiglu needs as many gates as values, but its input is [2, 5]: an odd number. Give it "
                       "both halves, one product in two groups.",
                       Error);
}
