// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/matmul_columns.hpp>
#include <dspp/ops/slice.hpp>

#include <laws/vjp.hpp>

using namespace dspp;
using ops::Columns;
using enum Transpose;

namespace {

struct Case {
  Size m, n, k;
};
constexpr Case cases[] = {{1, 1, 1}, {3, 7, 17}, {64, 64, 64}, {40, 401, 270}, {5, 3, 300}};

/// A matrix of which columns [2, 2 + columns) are used, with one more after them.
template <class T>
Columns<T, Cpu> columns_of(Size rows, Size columns, Pool& pool, std::uint32_t stream) {
  return {laws::random<T>(shape(rows, columns + 3), pool, stream), 2, columns};
}

template <class T>
Tensor<T, 2> copied(const Columns<T, Cpu>& x) {
  return ops::slice(x.of, 1, x.begin, x.count);
}

/// The same as matmul_into of copies, up to `bound` of the largest element; the other columns stay as they were.
template <class G, class T>
void check_columns(double bound) {
  Pool pool;
  for (const Case& e : cases)
    for (const Transpose ta : {no, yes})
      for (const Transpose tb : {no, yes})
        for (const Write write : {Write::overwrite, Write::accumulate}) {
          const auto a = columns_of<T>(ta == no ? e.m : e.k, ta == no ? e.k : e.m, pool, 1);
          const auto b = columns_of<T>(tb == no ? e.k : e.n, tb == no ? e.n : e.k, pool, 2);
          const auto into = columns_of<G>(e.m, e.n, pool, 3);
          const auto expected = copied(into), before = laws::copy<G>(into.of);
          ops::matmul_into(expected, write, copied(a), ta, copied(b), tb);
          ops::matmul_columns_into(into, write, a, ta, b, tb);
          laws::Worst gap, largest;
          bool untouched = true;
          for (Size i = 0; i < e.m; ++i)
            for (Size j = 0; j < e.n + 3; ++j) {
              const auto is = static_cast<double>(into.of.data()[i * (e.n + 3) + j]);
              if (j < 2 || j == e.n + 2) {
                untouched = untouched && is == static_cast<double>(before.data()[i * (e.n + 3) + j]);
                continue;
              }
              const auto needed = static_cast<double>(expected.data()[i * e.n + j - 2]);
              gap.add(laws::difference(is, needed));
              largest.add(laws::difference(needed, 0));
            }
          CHECK(untouched);
          CHECK(laws::difference(gap.value(), 0, largest.value()) <= bound);
        }
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const Columns<double, D> x(Tensor<double, 2, D>::zeros(shape(6, 4), memory), 1, 2);
    const Columns<double, D> w(Tensor<double, 2, D>::zeros(shape(5, 2), memory));
    const Columns<double, D> y(Tensor<double, 2, D>::zeros(shape(6, 9), memory), 4, 5);
    ops::matmul_columns_into(y, Write::overwrite, x, no, w, yes, Tensor<double, 1, D>::zeros(shape(5), memory));
    ops::matmul_columns_into(y, Write::accumulate, x, no, w, yes);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.flops_forward() == 2 * 2 * 6 * 5 * 2 + 6 * 5;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("a product of columns is the product of their copies, in every type and transposition") {
  check_columns<double, double>(1e-14);
  check_columns<float, float>(1e-5);
  check_columns<float, bf16>(1e-5);
  check_columns<bf16, bf16>(1e-2);
  check_columns<f16, f16>(2e-3);
}

TEST_CASE("a bias joins the product on every row, with the bits of matmul_bias") {
  Pool pool;
  const auto x = columns_of<float>(5, 6, pool, 1), w = columns_of<float>(4, 6, pool, 2);
  const auto bias = laws::random<float>(shape(4), pool, 3);
  const Columns<float, Cpu> y(Tensor<float, 2>::zeros(shape(5, 4), pool));
  ops::matmul_columns_into(y, Write::overwrite, x, no, w, yes, bias);
  CHECK(laws::same_bits(y.of, ops::matmul_bias(copied(x), no, copied(w), yes, bias)));
}

TEST_CASE("columns outside the matrix, and products that do not fit, are errors") {
  Pool pool;
  const auto x = Tensor<float, 2>::zeros(shape(2, 3), pool);
  CHECK_THROWS_WITH_AS(
      (Columns<float, Cpu>(x, 2, 2)),
      "dspp: Columns needs columns of its matrix, but it got 2 to 4 of [2, 3]. Check the first one and "
      "their number.",
      Error);
  const Columns<float, Cpu> two(x, 1, 2), all(x);
  CHECK_THROWS_AS(ops::matmul_columns_into(all, Write::overwrite, two, no, all, yes), Error);
  CHECK_THROWS_AS(ops::matmul_columns_into(all, Write::overwrite, all, no, all, yes), Error);
}
