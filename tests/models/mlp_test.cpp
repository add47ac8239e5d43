// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/operators.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/models/sequential.hpp>
#include <dspp/nn/activation.hpp>
#include <dspp/nn/layer_norm.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const MlpConfig config{.width = 8, .ffn_width = 24};
const Global<3> x = global_normal(shape(2, 12, 8), 1), dy = global_normal(shape(2, 12, 8), 2);

template <class P, class Make>
auto run(Make make) {
  return run_layer<P, typename P::HiddenState, typename P::HiddenState>(make, call_layer, x, dy);
}

template <class P>
auto mlp() {
  return run<P>([] { return Mlp<P>(config); });
}

template <class P>
using Feed = Sequential<P, LayerNorm<P>, ColumnParallel<Linear>, Gelu, RowParallel<Linear>>;

template <class P>
auto feed() {
  return run<P>(
      [] { return Feed<P>(LayerNorm<P>(8), ColumnParallel<Linear, P>(8, 24), Gelu{}, RowParallel<Linear, P>(24, 8)); });
}

/// Mlp's product and its gelu one after the other.
template <class P>
struct Apart : Mlp<P> {
  using Mlp<P>::Mlp;
  constexpr auto operator()(const Hidden<P>& x) const { return this->down(gelu(this->up(x), this->form)); }
};

template <class P>
void check_gelu_in_the_product() {
  for (const bool bias : {true, false})
    for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
      const MlpConfig c{.width = 8, .ffn_width = 24, .bias = bias, .gelu = form};
      check_same(run<P>([&] { return Mlp<P>(c); }), run<P>([&] { return Apart<P>(c); }), 1e-300);
    }
}

/// A gelu whose result several products and other operations take, and a gelu of a gelu.
template <class P>
struct UsesOfGelu : Layer<P> {
  Linear<P> up{4, 4}, down{4, 4}, other{4, 4};

  constexpr void visit(auto&& f) {
    f("up", up);
    f("down", down);
    f("other", other);
  }
  constexpr auto operator()(const Hidden<P>& x) const {
    const auto h = up.gelu(x), of_h = gelu(h, GeluForm::exact);
    return down(h) * h + other(h) + other(of_h) + down(gelu(x));
  }
};

/// A Linear of the gelu of a constant.
template <class P>
struct GeluOfConstant : Layer<P> {
  Linear<P> down{4, 4};
  Tensor<double, 3, Cpu> fixed;

  constexpr explicit GeluOfConstant(Tensor<double, 3, Cpu> value) : fixed(std::move(value)) {}
  constexpr void visit(auto&& f) { f("down", down); }
  constexpr auto operator()(const Hidden<P>& x) const { return down(gelu(Hidden<P>::constant(fixed, x.tape()))) * x; }
};

}  // namespace

TEST_CASE("gradients through a gelu equal finite differences, whatever takes its result") {
  check_layer_gradient<Hidden<Policy<F64>>>(UsesOfGelu<Policy<F64>>(), shape(2, 2, 4));
  TestRank here;
  check_layer_gradient<Hidden<Policy<F64>>>(GeluOfConstant<Policy<F64>>(random<double>(shape(2, 2, 4), here.pool, 5)),
                                            shape(2, 2, 4));
}

TEST_CASE("a product that takes a gelu gives its gradient to gelu's argument, and the block kept for it is freed") {
  Linear<Policy<F64>> down{4, 4};
  TestRank here;
  Home<double> home(down, here);
  const auto value = random<double>(shape(2, 2, 4), here.pool, 5);
  const auto run = [&](bool through) {
    home.forget_gradients();
    const Size live = here.pool.live();
    Hidden<Policy<F64>> x(laws::copy<double>(value), here.tape);
    const Slot input = x.slot();
    auto h = gelu(x);
    x = {};
    if (!through) h = 1.0 * h;
    auto y = down(h);
    CHECK((here.tape.gelu_of(h.slot()) != nullptr) == through);
    CHECK(here.tape.gelu_of(y.slot()) == nullptr);
    h = {};
    const Slot output = y.slot();
    y = {};
    here.tape.backward(output, random<double>(shape(2, 2, 4), here.pool, 9));
    auto dx = here.tape.take<double, 3>(input, shape(2, 2, 4));
    CHECK(here.pool.live() == live + 16 * 8);
    here.tape.clear();
    return dx;
  };
  CHECK(same_bits(run(true), run(false)));
}

TEST_CASE("only a slot of its own pass that waits for gradients is a gelu's to a tape") {
  TestRank here, other;
  Dense<double, 3> x(random<double>(shape(2, 2, 4), here.pool, 5), here.tape);
  const auto h = gelu(x);
  CHECK(here.tape.gelu_of(h.slot())->slot.number == x.slot().number);
  CHECK(here.tape.gelu_of(x.slot()) == nullptr);
  CHECK(here.tape.gelu_of(Slot{}) == nullptr);
  CHECK_THROWS_AS(other.tape.gelu_of(h.slot()), Error);
  here.tape.backward(h.slot(), random<double>(shape(2, 2, 4), here.pool, 9));
  CHECK(here.tape.gelu_of(h.slot()) == nullptr);
  here.tape.clear();
  CHECK_THROWS_AS(here.tape.gelu_of(h.slot()), Error);
}

TEST_CASE("Mlp has the bits of a product and a gelu apart") {
  check_gelu_in_the_product<Whole<1>>();
  check_gelu_in_the_product<Whole<3>>();
  check_gelu_in_the_product<Split<2>>();
}

TEST_CASE("Mlp's gradients equal finite differences") {
  check_layer_gradient<Hidden<Policy<F64>>>(Mlp<Policy<F64>>({.width = 4, .ffn_width = 6}), shape(2, 2, 4));
}

TEST_CASE("Mlp equals the one of one rank at 2, 3 and 4, with and without SequenceParallel") {
  const auto expected = mlp<Whole<1>>();
  check_same(mlp<Whole<2>>(), expected);
  check_same(mlp<Whole<3>>(), expected);
  check_same(mlp<Whole<4>>(), expected);
  check_same(mlp<Split<2>>(), expected);
  check_same(mlp<Split<3>>(), expected);
  check_same(mlp<Split<4>>(), expected);
}

TEST_CASE("tensor parallelism moves as many bytes with SequenceParallel as without") {
  const auto whole = mlp<Whole<2>>(), split = mlp<Split<2>>();
  CHECK(whole.forward.total() == split.forward.total());
  CHECK(whole.backward.total() == split.backward.total());
}

TEST_CASE("Sequential binds its wrappers to its policy and equals the Sequential of one rank") {
  const auto expected = feed<Whole<1>>();
  check_same(feed<Whole<3>>(), expected);
  check_same(feed<Split<2>>(), expected);
}

TEST_CASE("a Sequential with unbound wrappers moves to another device") {
  using OnPaper = rebind<Feed<Whole<2>>, Meta>;
  using Q = Policy<F64, Tp<2>, Meta>;
  static_assert(std::is_same_v<OnPaper, Feed<Q>>);
  static_assert(std::is_same_v<OnPaper::policy::DeviceType, Meta>);
  CHECK(std::is_same_v<decltype(std::declval<OnPaper&>()(std::declval<Hidden<Q>>())), Hidden<Q>>);
}

TEST_CASE("Recompute gives the bits of the layer inside, and repeats its forward's collectives in backward") {
  const auto check = [&](const auto& again, const auto& once) {
    check_same(again, once, 1e-300);
    CHECK(again.forward == once.forward);
    CHECK(again.backward == once.backward + once.forward);
  };
  check(run<Whole<2>>([] { return Recompute<Mlp<Whole<2>>>(config); }), mlp<Whole<2>>());
  check(run<Split<3>>([] { return Recompute<Mlp<Split<3>>>(config); }), mlp<Split<3>>());
}

TEST_CASE("a Recompute in a Recompute gives the same bits again") {
  const auto nested = run<Whole<2>>([] { return Recompute<Recompute<Mlp<Whole<2>>>>(config); });
  check_same(nested, mlp<Whole<2>>(), 1e-300);
}

TEST_CASE("Mlp in f32, bf16 and f16 is as close to f64 as its products round, on one rank and on two") {
  constexpr Size width = 96, ffn_width = 384, rows = 128;
  const Global<3> wide = global_normal(shape(2, rows / 2, width), 1),
                  dwide = global_normal(shape(2, rows / 2, width), 2);
  const auto make = []<class P> { return Mlp<P>({.width = width, .ffn_width = ffn_width}); };
  // y: up, gelu, down; dx: up in forward, the gradients of gelu's result and of its argument, and dx
  const Roundings y{3, width + 20 + ffn_width}, dx{4, width + 50 + width + ffn_width}, parameters{4, dx.sums + rows};
  check_layer_precision(make, wide, dwide, {.y = y, .dx = dx, .parameters = parameters});
  // two ranks: y is a sum of rounded summands, plus the bias; dx too, without a bias
  check_layer_precision<2>(make, wide, dwide, {.y = {5, y.sums}, .dx = {5, dx.sums}, .parameters = parameters});
}
