// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/shape_operators.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X2 = Dense<double, 2>;
using X3 = Dense<double, 3>;

TEST_CASE("the gradients of sums, products, activations and softmax are finite differences") {
  TestRank here;
  const auto x = random<double>(shape(2, 3, 4), here.pool, 8);
  const auto check = [&](auto f) { check_variable_gradient(here, f, x); };
  check([](const X3& v) { return v + v; });
  check([](const X3& v) { return v * v; });
  check([](const X3& v) { return 3.0 * v + v * 0.5; });
  check([](const X3& v) { return gelu(v); });
  check([](const X3& v) { return gelu(v, GeluForm::exact); });
  check([](const X3& v) { return relu(v); });
  check([](const X3& v) { return silu(v); });
  check([](const X3& v) { return softmax(v); });
  check([](const X3& v) { return gelu(v) * softmax(v + silu(v)); });
}

TEST_CASE("the gradients of matmul, contract and batched_matmul are finite differences in both operands") {
  TestRank here;
  const auto a = random<double>(shape(3, 3), here.pool, 8);
  check_variable_gradient<X2>(
      here, [](const X2& v) { return matmul(v, v); }, a);
  const auto b = random<double>(shape(2, 3, 3), here.pool, 8);
  check_variable_gradient<X3>(
      here, [](const X3& v) { return batched_matmul(v, v + v); }, b);
}

namespace {

/// a b with rows, columns or the contracted dimension split: value, da and db against the whole product.
template <class A, class B, int Ranks>
void check_split_product() {
  const Global<2> a = global_normal(shape(12, 24), 1), b = global_normal(shape(24, 12), 2);
  const Global<2> dc = global_normal(shape(12, 12), 3);
  constexpr bool contracted = std::is_same_v<A, Shard<1>>;
  using C = std::conditional_t<
      contracted, Partial,
      matmul_state<std::conditional_t<contracted, Replicate, A>, std::conditional_t<contracted, Replicate, B>>>;
  Parts<C, 2> c(dc.shape, Ranks);
  Parts<adjoint<A>, 2> da(a.shape, Ranks);
  Parts<adjoint<B>, 2> db(b.shape, Ranks);
  on_tp_ranks(Ranks, [&](TestRank& here) {
    Variable<double, 2, Cpu, Placed<On<Tp<Ranks>, A>>> x(part_of<A, double>(a, here.rank, Ranks, here.pool), here.tape);
    Variable<double, 2, Cpu, Placed<On<Tp<Ranks>, B>>> y(part_of<B, double>(b, here.rank, Ranks, here.pool), here.tape);
    const auto z = [&] {
      if constexpr (contracted)
        return contract(x, y);
      else
        return matmul(x, y);
    }();
    static_assert(std::is_same_v<state_of<decltype(z)>, C>);
    c.put(here.rank, z.value());
    here.tape.backward(z.slot(), part_of<adjoint<C>, double>(dc, here.rank, Ranks, here.pool));
    da.put(here.rank, here.tape.template take<double, 2>(x.slot(), x.shape()));
    db.put(here.rank, here.tape.template take<double, 2>(y.slot(), y.shape()));
  });
  const auto product = [](const Global<2>& u, bool tu, const Global<2>& v, bool tv) {
    const Size m = u.shape[tu ? 1 : 0], k = u.shape[tu ? 0 : 1], n = v.shape[tv ? 0 : 1];
    Global<2> w(shape(m, n));
    for (Size i = 0; i < m; ++i)
      for (Size j = 0; j < n; ++j)
        for (Size l = 0; l < k; ++l)
          w.data()[i * n + j] += u.data()[tu ? l * m + i : i * k + l] * v.data()[tv ? j * k + l : l * n + j];
    return w;
  };
  CHECK(distance(c.all_or_none().at, product(a, false, b, false).at) < 1e-12);
  CHECK(distance(da.all_or_none().at, product(dc, false, b, true).at) < 1e-12);
  CHECK(distance(db.all_or_none().at, product(a, true, dc, false).at) < 1e-12);
}

template <int Ranks>
void check_split_products() {
  check_split_product<Shard<0>, Replicate, Ranks>();
  check_split_product<Replicate, Shard<1>, Ranks>();
  check_split_product<Shard<1>, Shard<0>, Ranks>();
  check_split_product<Partial, Replicate, Ranks>();
}

}  // namespace

TEST_CASE("products of split matrices are slices or summands of the whole product, and so are their gradients") {
  check_split_products<1>();
  check_split_products<2>();
  check_split_products<3>();
  check_split_products<4>();
}

TEST_CASE("Partial + Partial and a multiple of Partial are Partial; Partial times Replicate too") {
  using S = Variable<float, 2, Meta, Placed<On<Tp<2>, Partial>>>;
  using R = Variable<float, 2, Meta, Placed<On<Tp<2>, Replicate>>>;
  static_assert(std::is_same_v<state_of<decltype(std::declval<S>() + std::declval<S>())>, Partial>);
  static_assert(std::is_same_v<state_of<decltype(2.0 * std::declval<S>())>, Partial>);
  static_assert(std::is_same_v<state_of<decltype(std::declval<R>() * std::declval<S>())>, Partial>);
  CHECK(std::is_same_v<state_of<decltype(std::declval<R>() * std::declval<R>())>, Replicate>);
}

TEST_CASE("values of shapes that do not fit are an error that names both") {
  TestRank here;
  X2 x(Tensor<double, 2>::zeros(shape(2, 3), here.pool), here.tape);
  X2 y(Tensor<double, 2>::zeros(shape(3, 2), here.pool), here.tape);
  CHECK_THROWS_WITH_AS(x + y,
                       "dspp: add needs extents that are equal or 1, counted from the last dimension, but they are "
                       "[2, 3] and [3, 2]. Reshape one of them first.",
                       Error);
  CHECK_THROWS_AS(x - y, Error);
  CHECK_THROWS_AS(x * y, Error);
  CHECK_THROWS_AS(x / y, Error);
  CHECK_THROWS_AS(broadcast_to(x, shape(4, 3)), Error);
}

TEST_CASE("one element on a rank is no extent of 1 where ranks cut the dimension") {
  TestRank here;
  using X = Variable<double, 2, Cpu, Placed<On<Tp<2>, Shard<1>>>>;
  using R = Variable<double, 2, Cpu, Placed<On<Tp<2>, Replicate>>>;
  const X one(Tensor<double, 2>::zeros(shape(3, 1), here.pool), here.tape);
  const X four(Tensor<double, 2>::zeros(shape(3, 4), here.pool), here.tape);
  const R whole(Tensor<double, 2>::zeros(shape(3, 2), here.pool), here.tape);
  CHECK_THROWS_WITH_AS(one * four,
                       "dspp: * needs one extent of the dimension that ranks cut, but a rank has [3, 1] and [3, 4]. "
                       "redistribute what is to be repeated to Replicate first.",
                       Error);
  CHECK_THROWS_AS(broadcast_to(one, shape(3, 4)), Error);
  CHECK_THROWS_AS(broadcast_to<Shard<1>>(whole, shape(3, 2)), Error);
}

TEST_CASE("what one side lacks a dimension for may be cut along it, and the gradient of that side is Partial") {
  using X = Variable<float, 3, Meta, Placed<On<Tp<2>, Shard<1>>>>;
  using V = Variable<float, 1, Meta, Placed<On<Tp<2>, Replicate>>>;
  using W = Variable<float, 1, Meta, Placed<On<Tp<2>, Shard<0>>>>;
  using S = Variable<float, 3, Meta, Placed<On<Tp<2>, Shard<2>>>>;
  using Cut = Variable<float, 3, Meta, Placed<On<Tp<1>, Invariant>, On<Cp<2>, Shard<1>>>>;
  using Whole = Variable<float, 1, Meta, Placed<On<Tp<1>, Invariant>>>;
  static_assert(std::is_same_v<decltype(std::declval<X>() + std::declval<V>()), X>);
  static_assert(std::is_same_v<decltype(std::declval<V>() / std::declval<X>()), X>);
  static_assert(std::is_same_v<decltype(std::declval<W>() * std::declval<S>()), S>);
  static_assert(std::is_same_v<decltype(std::declval<Cut>() - std::declval<Whole>()), Cut>);
  CHECK(std::is_same_v<decltype(std::declval<Whole>() - std::declval<Cut>()), Cut>);
}

namespace {
/// (x v) / u + v - u of slices and of what is repeated along them, against the same on one rank.
template <int Ranks>
void check_repeated() {
  const Global<3> x = global_normal(shape(2, 12, 3), 1), dy = global_normal(x.shape, 2);
  const Global<1> v = global_normal(shape(3), 3);
  const auto run = [&]<int N, class State, class Vector>(State, Vector) {
    std::tuple out{Parts<State, 3>(x.shape, N), Parts<State, 3>(x.shape, N), Parts<adjoint<Vector>, 1>(v.shape, N)};
    on_tp_ranks(N, [&](TestRank& here) {
      Variable<double, 3, Cpu, Placed<On<Tp<N>, State>>> in(part_of<State, double>(x, here.rank, N, here.pool),
                                                            here.tape);
      Variable<double, 1, Cpu, Placed<On<Tp<N>, Vector>>> by(part_of<Vector, double>(v, here.rank, N, here.pool),
                                                             here.tape);
      const auto u = by * by + 1.0;
      const auto y = (in * by) / u + by - u;
      std::get<0>(out).put(here.rank, y.value());
      here.tape.backward(y.slot(), part_of<State, double>(dy, here.rank, N, here.pool));
      std::get<1>(out).put(here.rank, here.tape.template take<double, 3>(in.slot(), in.shape()));
      std::get<2>(out).put(here.rank, here.tape.template take<double, 1>(by.slot(), by.shape()));
    });
    return std::tuple{std::get<0>(out).all_or_none(), std::get<1>(out).all_or_none(), std::get<2>(out).all_or_none()};
  };
  const auto [y, dx, dv] = run.template operator()<1>(Invariant(), Invariant());
  const auto [ys, dxs, dvs] = run.template operator()<Ranks>(Shard<1>(), Replicate());
  CHECK(distance(ys.at, y.at) < 1e-13);
  CHECK(distance(dxs.at, dx.at) < 1e-13);
  CHECK(distance(dvs.at, dv.at) < 1e-12);
}
}  // namespace

TEST_CASE("slices beside a vector have the values and gradients of the whole, at 2 to 4 ranks") {
  check_repeated<2>();
  check_repeated<3>();
  check_repeated<4>();
}
