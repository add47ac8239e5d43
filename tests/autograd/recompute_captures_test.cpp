// SPDX-License-Identifier: Apache-2.0
// Captures of recomputed functions: variables receive their gradients as without recompute, bit for bit, and functions
// are kept until their backward.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/recompute.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/shape_operators.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X = Dense<double, 2>;

namespace {

using Function = std::function<X(const X& x, const X& captured)>;
const std::map<std::string, Function> functions{
    {"captured last", [](const X& x, const X& c) { return gelu(x) * c; }},
    {"captured first", [](const X& x, const X& c) { return c * gelu(x); }},
    {"captured on its own", [](const X& x, const X& c) { return silu(c) + x; }},
    {"captured often", [](const X& x, const X& c) { return c * x + gelu(c) * c; }},
    {"input often", [](const X& x, const X& c) { return x * c + gelu(x) * silu(x); }},
    {"captured alone", [](const X&, const X& c) { return gelu(c); }},
    {"captured itself", [](const X&, const X& c) { return c; }},
    {"the input itself", [](const X& x, const X&) { return x; }},
    {"not captured", [](const X& x, const X&) { return gelu(silu(x)); }},
    {"parts",
     [](const X& x, const X& c) {
       const auto [left, right] = split<1, 2>(x * c);
       return concat<1>(right * left, left) + c;
     }},
};

/// Gradients of the input, of the captured variable, and of its own input; `run` returns function(x, c).
template <class Run>
std::vector<Tensor<double, 2>> gradients(TestRank& here, const Function& function, bool constant, Run run) {
  const auto value = [&](std::uint32_t seed) { return random<double>(shape(2, 4), here.pool, seed); };
  const X x(value(1), here.tape), before = constant ? X::constant(value(2), here.tape) : X(value(2), here.tape);
  const X captured = constant ? before : 3.0 * before;
  const X y = captured * run(function, 2.0 * x, captured) + x * captured;
  here.tape.backward(y.slot(), value(3));
  std::vector<Tensor<double, 2>> result;
  for (const X* v : {&x, &before})
    result.push_back(here.tape.has_gradient(v->slot()) ? here.tape.take<double, 2>(v->slot(), v->shape())
                                                       : Tensor<double, 2>::zeros(v->shape(), here.pool));
  CHECK(here.tape.node_count() == 0);
  here.tape.clear();
  return result;
}

X direct(const Function& f, const X& x, const X& c) {
  return f(x, c);
}
X once(const Function& f, const X& x, const X& c) {
  return recompute([&f, c](const X& v) { return f(v, c); }, x);
}
X nested(const Function& f, const X& x, const X& c) {
  const auto outer = [&f, c](const X& v) {
    const X own = silu(v);
    return once(f, v, c) * own + recompute([&f, own](const X& w) { return f(w, own); }, v);
  };
  return recompute(outer, x);
}
X nested_direct(const Function& f, const X& x, const X& c) {
  const X own = silu(x);
  return f(x, c) * own + f(x, own);
}

}  // namespace

TEST_CASE("captured variables receive their gradients as without recompute, bit for bit, also nested") {
  for (const auto& named : functions)
    for (const bool constant : {false, true}) {
      const std::string& name = named.first;
      const Function& function = named.second;
      CAPTURE(name);
      CAPTURE(constant);
      TestRank here;
      const auto check = [&](auto with, auto without) {
        const auto a = gradients(here, function, constant, with), b = gradients(here, function, constant, without);
        for (std::size_t i = 0; i < 2; ++i) CHECK(same_bits(a[i], b[i]));
      };
      check(once, direct);
      check(nested, nested_direct);
    }
}

TEST_CASE("a temporary function is kept until the backward, and no longer") {
  TestRank here;
  const auto factor = std::make_shared<double>(3);
  const X x(random<double>(shape(2, 4), here.pool, 1), here.tape);
  const X y = recompute([factor](const X& v) { return *factor * v; }, x);
  CHECK(factor.use_count() == 2);
  auto ones = random<double>(shape(2, 4), here.pool, 1);
  ones.fill(1);
  here.tape.backward(y.slot(), std::move(ones));
  CHECK(here.tape.take<double, 2>(x.slot(), x.shape()).data()[7] == 3);
  CHECK(factor.use_count() == 1);
}

TEST_CASE("a named function is kept too, and a move-only one is moved") {
  TestRank here;
  const auto factor = std::make_shared<double>(3);
  X x(random<double>(shape(2, 4), here.pool, 1), here.tape), y;
  {
    const auto named = [factor](const X& v) { return *factor * v; };
    y = recompute(named, x);
    auto only = [f = std::make_unique<double>(2), factor](const X& v) { return (*f * *factor) * v; };
    y = recompute(std::move(only), y);
  }
  CHECK(factor.use_count() == 3);
  auto ones = random<double>(shape(2, 4), here.pool, 1);
  ones.fill(1);
  here.tape.backward(y.slot(), std::move(ones));
  CHECK(here.tape.take<double, 2>(x.slot(), x.shape()).data()[7] == 18);
  CHECK(factor.use_count() == 1);
}

namespace {
constexpr Size captured_on_paper() {
  Ledger ledger;
  Recorder<> group(0, 1);
  Context<Meta> context{.memory = &ledger, .along = {.tp = &group}};
  bool both = false;
  {
    Tape<Meta> tape(context);
    using V = Variable<float, 2, Meta, Placed<On<Tp<1>, Invariant>>>;
    const V x(Tensor<float, 2, Meta>::zeros(Shape<2>{{4, 8}}, ledger), tape);
    const V c(Tensor<float, 2, Meta>::zeros(Shape<2>{{4, 8}}, ledger), tape);
    const auto y = recompute([c](const V& v) { return gelu(v) * c; }, x);
    tape.backward(y.slot(), Tensor<float, 2, Meta>::zeros(y.shape(), ledger));
    both = tape.has_gradient(x.slot()) && tape.has_gradient(c.slot());
  }
  return both && ledger.live() == 0 ? ledger.peak() : -1;
}
}  // namespace

TEST_CASE("captured variables receive their gradients in constant expressions") {
  static_assert(captured_on_paper() > 0);
  CHECK(captured_on_paper() > 0);
}
