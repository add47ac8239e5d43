// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>

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

TEST_CASE("values of different shapes are an error that names both") {
  TestRank here;
  X2 x(Tensor<double, 2>::zeros(shape(2, 3), here.pool), here.tape);
  X2 y(Tensor<double, 2>::zeros(shape(3, 2), here.pool), here.tape);
  CHECK_THROWS_WITH_AS(x + y,
                       "dspp: add needs two tensors of one shape, but they are [2, 3] and [3, 2]. Reshape or broadcast "
                       "one of them first.",
                       Error);
}
