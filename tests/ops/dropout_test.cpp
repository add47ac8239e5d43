// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/dropout.hpp>
#include <dspp/ops/slice.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

constexpr ops::DropoutSite site{.key = {99}, .step = 3, .site = 5};

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    auto x = Tensor<bf16, 3, D>::zeros(shape(2, 3, 50), memory);
    const auto apart = ops::dropout(x, 0.1, site);
    const auto in_place = ops::dropout(std::move(x), 0.1, site);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.peak() == 2 * round_up(600, 64);
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("dropout's vjp is the same call on dy") {
  Pool pool;
  for (const Size n : {1, 3, 7, 17, 70}) {
    const auto x = laws::random<double>(shape(3, n), pool, 1), dy = laws::random<double>(shape(3, n), pool, 2);
    laws::check_gradient(x, ops::dropout(dy, 0.3, site), [&] { return laws::dot(ops::dropout(x, 0.3, site), dy); });
  }
}

TEST_CASE("dropout drops its share and scales the rest, so that the mean stays") {
  Pool pool;
  auto x = Tensor<float, 2, Cpu>::zeros(shape(4, 50000), pool);
  x.fill(1);
  const auto y = ops::dropout(x, 0.25, site);
  Size dropped = 0;
  for (Size i = 0; i < y.count(); ++i) {
    CHECK((y.data()[i] == 0.0f || y.data()[i] == static_cast<float>(1 / 0.75)));
    dropped += y.data()[i] == 0.0f;
  }
  const double deviation = std::sqrt(200000 * 0.25 * 0.75);
  CHECK(std::abs(static_cast<double>(dropped) - 50000) < 5 * deviation);
}

TEST_CASE("dropout with probability 0 changes nothing") {
  Pool pool;
  const auto x = laws::random<bf16>(shape(3, 45), pool, 3);
  CHECK(laws::same_bits(ops::dropout(x, 0, site), x));
}

TEST_CASE("a rank's slice of a dropout is the slice of the whole one") {
  Pool pool;
  const auto x = laws::random<float>(shape(4, 10, 37), pool, 4);
  const auto whole = ops::dropout(x, 0.4, site);
  for (const auto& [dimension, begin, extent] : {std::array<int, 3>{0, 1, 2}, {1, 3, 5}, {2, 9, 21}}) {
    ops::DropoutSite own = site;
    if (dimension == 0)
      own.first_sample = begin;
    else {
      own.window.global[dimension - 1] = x[dimension];
      own.window.origin[dimension - 1] = begin;
    }
    const auto part = ops::dropout(ops::slice(x, dimension, begin, extent), 0.4, own);
    CHECK(laws::same_bits(part, ops::slice(whole, dimension, begin, extent)));
  }
}

TEST_CASE("two sites, steps, samples or seeds drop different elements") {
  Pool pool;
  auto x = Tensor<float, 2, Cpu>::zeros(shape(2, 4000), pool);
  x.fill(1);
  const auto first = ops::dropout(x, 0.5, site);
  ops::DropoutSite others[4] = {site, site, site, site};
  others[0].site = 6;
  others[1].step = 4;
  others[2].first_sample = 1;
  others[3].key = {100};
  for (const auto& other : others) {
    const auto second = ops::dropout(x, 0.5, other);
    Size same = 0;
    for (Size i = 0; i < 4000; ++i) same += first.data()[i] == second.data()[i];
    CHECK(std::abs(static_cast<double>(same) - 2000) < 5 * std::sqrt(1000.0));
  }
  Size same = 0;
  for (Size i = 0; i < 4000; ++i) same += first.data()[i] == first.data()[4000 + i];
  CHECK(std::abs(static_cast<double>(same) - 2000) < 5 * std::sqrt(1000.0));
}

TEST_CASE("dropout works in place when it may, with the same bits on any number of threads") {
  Pool pool;
  const auto x = laws::random<bf16>(shape(3, 900, 50), pool, 5);
  const auto op = [](Tensor<bf16, 3, Cpu> t) { return ops::dropout(std::move(t), 0.1, site); };
  laws::check_in_place(x, op);
  laws::check_threads([&] { return op(x); });
}

TEST_CASE("dropout makes the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("a wrong probability or window of dropout is an error with its value") {
  Pool pool;
  const auto x = laws::random<float>(shape(2, 3, 8), pool, 6);
  for (const double p : {1.0, -0.1, std::nan("")}) CHECK_THROWS_AS(ops::dropout(x, p, site), Error);
  CHECK_THROWS_WITH_AS(ops::dropout(x, 1.5, site),
                       "dspp: dropout needs a probability from 0 to below 1, but it got 1.500000. Give the share of "
                       "elements to drop.",
                       Error);
  ops::DropoutSite outside = site;
  outside.window.global[1] = 12;
  outside.window.origin[1] = 5;
  CHECK_THROWS_WITH_AS(ops::dropout(x, 0.5, outside),
                       "dspp: dropout needs a window inside the global sample, but dimension 2 has elements 5 to 13 of "
                       "12. Check the slice's origin.",
                       Error);
}
