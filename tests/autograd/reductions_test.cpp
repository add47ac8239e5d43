// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/reductions.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X3 = Dense<double, 3>;

TEST_CASE("the gradients of sum, mean and squared_norm are finite differences") {
  TestRank here;
  const auto x = random<double>(shape(2, 3, 4), here.pool, 8);
  const auto check = [&](auto f) { check_variable_gradient(here, f, x); };
  check([](const X3& v) { return sum(v); });
  check([](const X3& v) { return mean(v); });
  check([](const X3& v) { return squared_norm(v); });
}

TEST_CASE("a reduction of slices is Partial, of anything else it is placed as its argument") {
  using X = Variable<bf16, 3, Meta, Placed<On<Tp<2>, Shard<1>>>>;
  using R = Variable<bf16, 3, Meta, Placed<On<Tp<2>, Replicate>>>;
  static_assert(std::is_same_v<state_of<decltype(sum(std::declval<X>()))>, Partial>);
  static_assert(std::is_same_v<state_of<decltype(mean(std::declval<X>()))>, Partial>);
  static_assert(std::is_same_v<state_of<decltype(squared_norm(std::declval<X>()))>, Partial>);
  static_assert(std::is_same_v<state_of<decltype(sum(std::declval<R>()))>, Replicate>);
  CHECK(std::is_same_v<decltype(sum(std::declval<X>()))::Element, float>);
}

namespace {

/// f of a value split in `State` and redistributed to Invariant, against f of the whole: value and gradient.
template <class State, int Ranks, class F>
void check_whole(F f) {
  const Global<3> x = global_normal(shape(2, 12, 3), 1);
  double expected = 0;
  Global<3> expected_dx(x.shape);
  {
    TestRank here;
    X3 in(part_of<Invariant, double>(x, 0, 1, here.pool), here.tape);
    const auto y = f(in);
    expected = *y.value().data();
    auto seed = Tensor<double, 0>::uninitialized({}, here.pool);
    seed.fill(0.7);
    here.tape.backward(y.slot(), std::move(seed));
    const auto dx = here.tape.template take<double, 3>(in.slot(), in.shape());
    expected_dx.at.assign(dx.data(), dx.data() + dx.count());
  }
  Parts<adjoint<State>, 3> parts(x.shape, Ranks);
  on_tp_ranks(Ranks, [&](TestRank& here) {
    using X = Variable<double, 3, Cpu, Placed<On<Tp<Ranks>, State>>>;
    X in(part_of<State, double>(x, here.rank, Ranks, here.pool), here.tape);
    const auto y = redistribute<Invariant>(f(in));
    CHECK(std::abs(*y.value().data() - expected) < 1e-12);
    auto seed = Tensor<double, 0>::uninitialized({}, here.pool);
    seed.fill(0.7);
    here.tape.backward(y.slot(), std::move(seed));
    const auto dx = here.tape.template take<double, 3>(in.slot(), in.shape());
    if constexpr (std::is_same_v<State, Partial>) {
      CHECK(distance({dx.data(), dx.data() + dx.count()}, expected_dx.at) < 1e-14);  // Replicate
    } else {
      parts.put(here.rank, dx);
    }
  });
  if constexpr (!std::is_same_v<State, Partial>) CHECK(distance(parts.all_or_none().at, expected_dx.at) < 1e-14);
}

constexpr auto sum_of = [](const auto& v) { return sum(v); };
constexpr auto mean_of = [](const auto& v) { return mean(v); };
constexpr auto norm_of = [](const auto& v) { return squared_norm(v); };

}  // namespace

TEST_CASE("sum, mean and squared_norm of slices add up to those of the whole, and so do the gradients") {
  check_whole<Shard<1>, 1>(mean_of);
  check_whole<Shard<1>, 2>(sum_of);
  check_whole<Shard<1>, 2>(mean_of);
  check_whole<Shard<1>, 3>(mean_of);
  check_whole<Shard<1>, 3>(norm_of);
  check_whole<Shard<1>, 4>(mean_of);
}

TEST_CASE("sum and mean of summands are summands of the sum and the mean") {
  check_whole<Partial, 2>(sum_of);
  check_whole<Partial, 3>(mean_of);
}

TEST_CASE("sums and means along a split dimension are summands of the whole, those along others keep the slices") {
  using X = Variable<float, 3, Meta, Placed<On<Tp<2>, Shard<1>>, On<Cp<2>, Shard<0>>>>;
  using Y = Variable<float, 2, Meta, Placed<On<Tp<2>, Partial>, On<Cp<2>, Shard<0>>>>;
  using Z = Variable<float, 2, Meta, Placed<On<Tp<2>, Shard<1>>, On<Cp<2>, Shard<0>>>>;
  using Last = Variable<float, 3, Meta, Placed<On<Tp<2>, Shard<2, 3>>>>;
  static_assert(std::is_same_v<decltype(sum<1>(std::declval<X>())), Y>);
  static_assert(std::is_same_v<decltype(mean<-2>(std::declval<X>())), Y>);
  static_assert(std::is_same_v<decltype(max<2>(std::declval<X>())), Z>);
  static_assert(std::is_same_v<state_of<decltype(sum<0>(std::declval<Last>()))>, Shard<1, 3>>);
  CHECK(std::is_same_v<state_of<decltype(max<0>(std::declval<Last>(), keep_dimension))>, Shard<2, 3>>);
  check_whole<Shard<1>, 2>([](const auto& v) { return sum(redistribute<Invariant>(mean<1>(v))); });
  check_whole<Shard<1>, 3>([](const auto& v) { return sum(redistribute<Invariant>(sum<1>(v, keep_dimension))); });
  check_whole<Shard<1>, 4>([](const auto& v) { return sum(redistribute<Invariant>(mean<0>(v))); });
  check_whole<Partial, 2>([](const auto& v) { return sum(mean<2>(v)); });
}

TEST_CASE("the gradient of a maximum goes to the first of equal elements, and NaN is the largest") {
  TestRank here;
  const double nan = std::nan("");
  for (const auto& [elements, place] : {std::pair{std::array{1.0, 3.0, 3.0, 2.0}, 1},
                                        {{2.0, 2.0, 2.0, 2.0}, 0},
                                        {{-4.0, -3.0, -5.0, -3.0}, 1},
                                        {{1.0, nan, 9.0, nan}, 1},
                                        {{nan, 1.0, 2.0, 3.0}, 0}}) {
    auto value = Tensor<double, 2>::uninitialized(shape(1, 4), here.pool);
    std::copy_n(elements.begin(), 4, value.data());
    Dense<double, 2> x(value, here.tape);
    const auto y = max<-1>(x);
    const double largest = elements[static_cast<std::size_t>(place)];
    CHECK((std::isnan(largest) ? std::isnan(*y.value().data()) : *y.value().data() == largest));
    auto dy = Tensor<double, 1>::uninitialized(shape(1), here.pool);
    dy.fill(0.5);
    here.tape.backward(y.slot(), std::move(dy));
    const auto dx = here.tape.take<double, 2>(x.slot(), x.shape());
    for (int i = 0; i < 4; ++i) CHECK(dx.data()[i] == (i == place ? 0.5 : 0));
    here.tape.clear();
  }
  const X3 none(Tensor<double, 3>::zeros(shape(2, 0, 3), here.pool), here.tape);
  CHECK_THROWS_WITH_AS(max<1>(none),
                       "dspp: max needs at least one element along its dimension, but [2, 0, 3] has none along "
                       "dimension 1. Check the extents.",
                       Error);
}

namespace {
template <Device D>
constexpr void all_of_them(Context<D>& context) {
  Tape<D> tape(context);
  using X = Variable<float, 2, D, Placed<On<Tp<2>, Shard<1>>>>;
  X x(Tensor<float, 2, D>::zeros(Shape<2>{{4, 8}}, *context.memory), tape);
  const auto reduce = [&](const auto& y) {
    auto seed = Tensor<float, 0, D>::uninitialized({}, *context.memory);
    seed.fill(1);
    tape.backward(y.slot(), std::move(seed));
  };
  reduce(sum(x));
  reduce(mean(x));
  reduce(squared_norm(x));
  reduce(sum(sum<0>(x)));
  reduce(sum(mean<-1>(x)));
  reduce(sum(max<0>(x, keep_dimension)));
}
constexpr Size peak_on_paper() {
  Ledger ledger;
  Recorder<> group(0, 2);
  Context<Meta> context{.memory = &ledger, .along = {.tp = &group}};
  all_of_them(context);
  return ledger.live() == 0 ? ledger.peak() : -1;
}
}  // namespace

TEST_CASE("reductions work in constant expressions, and paper counts as the real device") {
  constexpr Size peak = peak_on_paper();
  static_assert(peak > 0);
  TestRank here;
  all_of_them(here.context);
  CHECK(here.pool.peak() == peak);
  CHECK(here.pool.live() == 0);
}
