// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/recompute.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X2 = Dense<double, 2>;

namespace {
Tensor<double, 2> filled(TestRank& here, double value) {
  auto x = Tensor<double, 2>::uninitialized(shape(2, 4), here.pool);
  x.fill(value);
  return x;
}
}  // namespace

TEST_CASE("a gradient with one handle is passed on in its own block") {
  TestRank here;
  const Slot slot = here.tape.new_slot<double>(shape(2, 4));
  auto dy = filled(here, 1);
  const double* block = dy.data();
  here.tape.give(slot, std::move(dy));
  const auto taken = here.tape.take<double, 2>(slot, shape(2, 4));
  CHECK(taken.data() == block);
  CHECK(taken.unique());
  CHECK_FALSE(here.tape.has_gradient(slot));
}

TEST_CASE("gradients are added in the block of one with a single handle, never in a shared one") {
  TestRank here;
  const Slot slot = here.tape.new_slot<double>(shape(2, 4));
  auto shared = filled(here, 1), alone = filled(here, 2);
  const double* block = alone.data();
  here.tape.give(slot, shared);
  here.tape.give(slot, std::move(alone));
  const auto sum = here.tape.take<double, 2>(slot, shape(2, 4));
  CHECK(sum.data() == block);
  CHECK(sum.data()[7] == 3);
  CHECK(shared.data()[7] == 1);
  here.tape.give(slot, shared);
  here.tape.give(slot, shared);
  const auto apart = here.tape.take<double, 2>(slot, shape(2, 4));
  CHECK(apart.data() != shared.data());
  CHECK(apart.data()[0] == 2);
  CHECK(shared.data()[0] == 1);
}

TEST_CASE("a slot without gradient gives an empty tensor, and a constant takes none") {
  TestRank here;
  CHECK_FALSE(here.tape.take<double, 2>(here.tape.new_slot<double>(shape(2, 4)), shape(2, 4)));
  here.tape.give(Slot{}, filled(here, 1));
  CHECK(here.pool.live() == 0);
}

TEST_CASE("backward frees each node with what it saved, and nodes without a gradient do not run") {
  TestRank here;
  X2 x(filled(here, 1), here.tape);
  const auto unused = gelu(x);
  const auto y = 2.0 * x;
  CHECK(here.tape.node_count() == 2);
  here.tape.backward(y.slot(), filled(here, 1));
  CHECK(here.tape.node_count() == 0);
  CHECK(here.tape.take<double, 2>(x.slot(), x.shape()).data()[3] == 2);
}

TEST_CASE("a tape that does not record keeps nothing, and its backward is an error") {
  TestRank here;
  const Tape<Cpu>::Recording off(here.tape, false);
  X2 x(filled(here, 1), here.tape);
  const auto y = gelu(x);
  CHECK(here.tape.node_count() == 0);
  CHECK(y.slot().number == -1);
  CHECK_THROWS_AS(here.tape.backward(y.slot(), filled(here, 1)), Error);
}

TEST_CASE("several tapes exist at once and run backward in any order") {
  TestRank here;
  Tape<Cpu> other(here.context);
  X2 a(filled(here, 1), here.tape), b(filled(here, 1), other);
  const auto y = 2.0 * a;
  const auto z = 3.0 * b;
  here.tape.backward(y.slot(), filled(here, 1));
  other.backward(z.slot(), filled(here, 1));
  CHECK(here.tape.take<double, 2>(a.slot(), a.shape()).data()[0] == 2);
  CHECK(other.take<double, 2>(b.slot(), b.shape()).data()[0] == 3);
}

TEST_CASE("a tape that is cleared or destroyed frees all its memory") {
  TestRank here;
  {
    Tape<Cpu> tape(here.context);
    X2 x(filled(here, 1), tape);
    auto y = gelu(gelu(x));
    y = {};
    x = {};
    CHECK(here.pool.live() > 0);
  }
  CHECK(here.pool.live() == 0);
}

TEST_CASE("recompute, once or nested, gives the same gradient bit for bit and keeps its input only") {
  TestRank here;
  const auto three = [](const auto& x) { return gelu(silu(gelu(x))); };
  const auto nested = [&](const auto& x) { return recompute(three, x) * x; };
  const auto gradient = [&](auto f) {
    X2 x(random<double>(shape(2, 4), here.pool, 8), here.tape);
    const Slot input = x.slot();
    auto y = f(x);
    const Slot output = y.slot();
    y = {};
    x = {};
    const Size kept = here.pool.live();
    here.tape.backward(output, random<double>(shape(2, 4), here.pool, 9));
    auto dx = here.tape.template take<double, 2>(input, shape(2, 4));
    here.tape.clear();
    return std::pair{kept, std::move(dx)};
  };
  const auto [kept, dx] = gradient(three);
  const auto [less, same] = gradient([&](const auto& x) { return recompute(three, x); });
  CHECK(same_bits(same, dx));
  const Size others = 2 * block_alignment;  // dx of before
  CHECK(kept == 3 * block_alignment);
  CHECK(less == others);
  const auto direct = gradient([&](const auto& x) { return three(x) * x; });
  const auto twice = gradient([&](const auto& x) { return recompute(nested, x); });
  CHECK(same_bits(twice.second, direct.second));
}

namespace {
constexpr Size nested_on_paper() {
  Ledger ledger;
  Recorder<> group(0, 1);
  Context<Meta> context{.memory = &ledger, .along = {.tp = &group}};
  {
    Tape<Meta> tape(context);
    using X = Variable<float, 2, Meta, Placed<On<Tp<1>, Invariant>>>;
    X x(Tensor<float, 2, Meta>::zeros(Shape<2>{{4, 8}}, ledger), tape);
    const auto inner = [](const X& v) { return gelu(v); };
    const auto outer = [&](const X& v) { return recompute(inner, v) + v; };
    const auto y = recompute(outer, x);
    tape.backward(y.slot(), Tensor<float, 2, Meta>::zeros(y.shape(), ledger));
  }
  return ledger.live() == 0 && ledger.flops_backward() > ledger.flops_forward() ? ledger.peak() : -1;
}
}  // namespace

TEST_CASE("a nested recompute runs in constant expressions") {
  static_assert(nested_on_paper() > 0);
  CHECK(nested_on_paper() > 0);
}
