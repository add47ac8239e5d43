// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/transpose.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

/// Element by element, by the definition.
template <class T>
bool is_transposed(const Tensor<T, 4, Cpu>& x, const Tensor<T, 4, Cpu>& y, const std::array<int, 4>& p) {
  Size at[4] = {};
  for (Size i = 0; i < y.count(); ++i) {
    Size rest = i, from[4] = {};
    for (int d = 3; d >= 0; --d) {
      at[d] = rest % y[d];
      rest /= y[d];
    }
    for (int d = 0; d < 4; ++d) from[p[static_cast<std::size_t>(d)]] = at[d];
    const Size source = ((from[0] * x[1] + from[1]) * x[2] + from[2]) * x[3] + from[3];
    if (std::memcmp(&y.data()[i], &x.data()[source], sizeof(T)) != 0) return false;
  }
  return true;
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto x = Tensor<bf16, 3, D>::zeros(shape(2, 3, 50), memory);
    const auto y = ops::transpose(x, {2, 0, 1});
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  const auto x = Tensor<float, 3, Meta>::zeros(shape(2, 3, 5), ledger);
  return ops::transpose(x, {2, 0, 1}).shape() == shape(5, 2, 3);
}
static_assert(runs_on_paper());
static_assert(ops::inverse(std::array<int, 3>{2, 0, 1}) == std::array<int, 3>{1, 2, 0});

}  // namespace

TEST_CASE("every permutation of four dimensions puts every element in its place") {
  Pool pool;
  for (const Shape<4>& extents : {shape(3, 1, 7, 17), shape(2, 33, 5, 20), shape(1, 1, 40, 65)}) {
    const auto x = laws::random<float>(extents, pool, 1);
    const auto narrow = laws::copy<bf16>(x);
    std::array<int, 4> p{0, 1, 2, 3};
    do {
      CHECK(is_transposed(x, ops::transpose(x, p), p));
      CHECK(is_transposed(narrow, ops::transpose(narrow, p), p));
    } while (std::next_permutation(p.begin(), p.end()));
  }
}

TEST_CASE("transpose's vjp is the inverse transpose") {
  Pool pool;
  const std::array<int, 3> p{2, 0, 1};
  const auto x = laws::random<double>(shape(3, 7, 5), pool, 2), dy = laws::random<double>(shape(5, 3, 7), pool, 3);
  laws::check_gradient(x, ops::transpose(dy, ops::inverse(p)), [&] { return laws::dot(ops::transpose(x, p), dy); });
  CHECK(laws::same_bits(ops::transpose(ops::transpose(x, p), ops::inverse(p)), x));
}

TEST_CASE("the number of threads changes no bit of a transpose") {
  Pool pool;
  const auto x = laws::random<double>(shape(300, 411), pool, 4);
  laws::check_threads([&] { return ops::transpose(x, {1, 0}); });
}

TEST_CASE("transpose makes the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("a dimension given twice to transpose is an error with its number") {
  Pool pool;
  const auto x = laws::random<float>(shape(2, 3, 4), pool, 5);
  CHECK_THROWS_WITH_AS(
      ops::transpose(x, {0, 2, 2}),
      "dspp: transpose needs each dimension once, but dimension 1 is given 0 times. List 0 to 2 in the "
      "new order.",
      Error);
}
