// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/shape_operators.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X3 = Dense<double, 3>;

TEST_CASE("the gradients of transpose, reshape, slice, split and concat are finite differences") {
  TestRank here;
  const auto x = random<double>(shape(2, 3, 6), here.pool, 8);
  const auto check = [&](auto f) { check_variable_gradient(here, f, x); };
  check([](const X3& v) { return transpose<2, 0, 1>(v); });
  check([](const X3& v) { return reshape(v, shape(6, 6)); });
  check([](const X3& v) { return slice<1>(v, 1, 2); });
  check([](const X3& v) { return concat<-1>(v, 2.0 * v, v); });
  check([](const X3& v) {
    auto [a, b, c] = split<2, 3>(v);
    return a * c + 3.0 * b;
  });
  check([](const X3& v) {
    auto [a, b] = split<-1>(v, std::array<Size, 2>{2, 4});
    return concat<2>(b, a);
  });
}

TEST_CASE("an unused part of a split has a gradient of zeros, and an unused split has none") {
  TestRank here;
  X3 x(random<double>(shape(1, 2, 4), here.pool, 8), here.tape);
  auto [a, b] = split<2, 2>(x);
  auto [unused, as_well] = split<1, 2>(x);
  here.tape.backward(b.slot(), random<double>(b.shape(), here.pool, 9));
  const auto dx = here.tape.take<double, 3>(x.slot(), x.shape());
  const auto dy = random<double>(b.shape(), here.pool, 9);
  for (Size i = 0; i < 2; ++i)
    for (Size j = 0; j < 4; ++j) CHECK(dx.data()[i * 4 + j] == (j < 2 ? 0 : dy.data()[i * 2 + j - 2]));
}

TEST_CASE("Shard follows its dimension through transpose, reshape, slice, split and concat") {
  using P = Placed<On<Tp<2>, Shard<1>>>;
  using X = Variable<float, 3, Meta, P>;
  using Order = decltype(transpose<2, 0, 1>(std::declval<X>()));
  static_assert(std::is_same_v<state_of<Order>, Shard<2>>);
  using Merged = decltype(reshape<Shard<0>>(std::declval<X>(), shape(1, 2)));
  static_assert(std::is_same_v<state_of<Merged>, Shard<0>>);
  using Cut = decltype(slice<-1>(std::declval<X>(), 0, 1));
  static_assert(std::is_same_v<state_of<Cut>, Shard<1>>);
  using Part = std::tuple_element_t<1, decltype(split<0, 2>(std::declval<X>()))>;
  static_assert(std::is_same_v<state_of<Part>, Shard<1>>);
  using Union = decltype(concat<2>(std::declval<X>(), std::declval<X>()));
  static_assert(std::is_same_v<state_of<Union>, Shard<1>>);
  using Sum = Variable<float, 3, Meta, Placed<On<Tp<2>, Partial>>>;
  CHECK(std::is_same_v<state_of<decltype(reshape(std::declval<Sum>(), shape(4)))>, Partial>);
}

namespace {
/// Transpose, split heads, parts and a union of a tensor that is split along dimension 1.
template <int Ranks>
void check_slices() {
  const Global<3> x = global_normal(shape(4, 12, 6), 1), dy = global_normal(shape(12, 6, 4), 2);
  Parts<Shard<0>, 3> y_parts(dy.shape, Ranks);
  Parts<Shard<1>, 3> dx_parts(x.shape, Ranks);
  on_tp_ranks(Ranks, [&](TestRank& here) {
    using X = Variable<double, 3, Cpu, Placed<On<Tp<Ranks>, Shard<1>>>>;
    X in(part_of<Shard<1>, double>(x, here.rank, Ranks, here.pool), here.tape);
    auto [a, b] = split<2>(in, std::array<Size, 2>{2, 4});
    auto turned = transpose<1, 2, 0>(concat<-1>(b, a));        // [12 / ranks, 6, 4]
    auto apart = reshape(turned, shape(turned[0] * 2, 3, 4));  // Shard<0> stays
    auto back = reshape<Shard<0>>(apart, shape(turned[0], Size{6}, Size{4}));
    static_assert(std::is_same_v<state_of<decltype(back)>, Shard<0>>);
    y_parts.put(here.rank, back.value());
    here.tape.backward(back.slot(), part_of<Shard<0>, double>(dy, here.rank, Ranks, here.pool));
    dx_parts.put(here.rank, here.tape.template take<double, 3>(in.slot(), in.shape()));
  });
  const Global<3> y = y_parts.all_or_none(), dx = dx_parts.all_or_none();
  for (Size i = 0; i < 4; ++i)
    for (Size j = 0; j < 12; ++j)
      for (Size k = 0; k < 6; ++k) {
        const Size there = (j * 6 + (k + 4) % 6) * 4 + i;  // the last four features come first
        const Size here = (i * 12 + j) * 6 + k;
        CHECK(y.data()[there] == x.data()[here]);
        CHECK(dx.data()[here] == dy.data()[there]);
      }
}
}  // namespace

TEST_CASE("slices of a tensor are reordered, cut and joined as the whole is, at 1 to 4 ranks") {
  check_slices<1>();
  check_slices<2>();
  check_slices<3>();
  check_slices<4>();
}

TEST_CASE("a reshape that would break up a split dimension is an error with both shapes") {
  TestRank here;
  using X = Variable<double, 3, Cpu, Placed<On<Tp<2>, Shard<2>>>>;
  X x(Tensor<double, 3>::zeros(shape(2, 3, 4), here.pool), here.tape);
  CHECK(reshape<Shard<1>>(x, shape(6, 4)).shape() == shape(6, 4));
  CHECK_THROWS_WITH_AS(reshape<Shard<1>>(x, shape(3, 8)),
                       "dspp: reshape needs the dimension split over Tp to lie behind as many elements as before, but "
                       "it goes from dimension 2 of [2, 3, 4] to dimension 1 of [3, 8]. Merge or cut the other "
                       "dimensions only.",
                       Error);
}

TEST_CASE("ranges, extents and unions that do not fit are errors") {
  TestRank here;
  X3 x(Tensor<double, 3>::zeros(shape(2, 3, 4), here.pool), here.tape);
  X3 other(Tensor<double, 3>::zeros(shape(2, 2, 4), here.pool), here.tape);
  CHECK_THROWS_AS(slice<1>(x, 2, 2), Error);
  CHECK_THROWS_AS((split<2>(x, std::array<Size, 2>{1, 2})), Error);
  CHECK_THROWS_AS((split<1, 2>(x)), Error);
  CHECK_THROWS_AS(concat<0>(x, other), Error);
  CHECK_THROWS_AS(reshape(x, shape(5, 5)), Error);
}

TEST_CASE("cast keeps values that both types hold, rounds others, and casts the gradient back") {
  TestRank here;
  X3 x(random<double>(shape(1, 2, 5), here.pool, 8), here.tape);
  const auto narrow = cast<bf16>(x);
  check_close(narrow.value(), x.value(), rounding<bf16>, 0);
  const auto dy = random<bf16>(x.shape(), here.pool, 9);
  here.tape.backward(narrow.slot(), copy<bf16>(dy));
  CHECK(same_bits(here.tape.take<double, 3>(x.slot(), x.shape()), copy(dy)));
}

namespace {
template <Device D>
constexpr void all_of_them(Context<D>& context) {
  Tape<D> tape(context);
  using X = Variable<float, 3, D, Placed<On<Tp<2>, Shard<1>>>>;
  X x(Tensor<float, 3, D>::zeros(Shape<3>{{2, 3, 8}}, *context.memory), tape);
  auto [a, b] = split<2, 2>(x);
  auto y = transpose<0, 2, 1>(concat<0>(a, slice<2>(b, 0, 4)));
  auto z = cast<double>(reshape<Shard<1>>(y, shape(y[0] * y[1], y[2])));
  tape.backward(z.slot(), Tensor<double, 2, D>::zeros(z.shape(), *context.memory));
}

constexpr Size peak_on_paper() {
  Ledger ledger;
  Recorder<> group(0, 2);
  Context<Meta> context{.memory = &ledger, .along = {.tp = &group}};
  all_of_them(context);
  return ledger.live() == 0 ? ledger.peak() : -1;
}
}  // namespace

TEST_CASE("shape operators work in constant expressions, and paper counts as the real device") {
  constexpr Size peak = peak_on_paper();
  static_assert(peak > 0);
  TestRank here;
  all_of_them(here.context);
  CHECK(here.pool.peak() == peak);
  CHECK(here.pool.live() == 0);
}
