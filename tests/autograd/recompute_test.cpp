// SPDX-License-Identifier: Apache-2.0
// Bits, memory and nesting: tape_test.cpp. Layers: models/recompute_test.cpp.
#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/recompute.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X = Dense<double, 2>;

namespace {
/// gelu, which counts how often it ran while its tape recorded and while it did not.
struct CountedGelu {
  int &recorded, &silent;
  X operator()(const X& x) const {
    ++(x.tape().recording() ? recorded : silent);
    return gelu(x);
  }
};

struct Fixture {
  TestRank here;
  int recorded = 0, silent = 0;
  CountedGelu function{recorded, silent};
  Tensor<double, 2> value() { return random<double>(shape(2, 4), here.pool, 8); }
};
}  // namespace

TEST_CASE_FIXTURE(Fixture, "what is recomputed runs once without recording, and once more in backward") {
  const X x(value(), here.tape);
  const X y = recompute(function, x);
  CHECK(here.tape.node_count() == 1);
  CHECK((silent == 1 && recorded == 0));
  here.tape.backward(y.slot(), value());
  CHECK((silent == 1 && recorded == 1));
  CHECK(here.tape.recording());
}

TEST_CASE_FIXTURE(Fixture, "on a tape that does not record it runs once") {
  const Tape<Cpu>::Recording off(here.tape, false);
  const X y = recompute(function, X(value(), here.tape));
  CHECK((silent == 1 && recorded == 0));
  CHECK(here.tape.node_count() == 0);
  CHECK_FALSE(here.tape.recording());
}

TEST_CASE_FIXTURE(Fixture, "what no gradient reaches does not run again") {
  const X x(value(), here.tape);
  const X unused = recompute(function, x), y = 2.0 * x;
  here.tape.backward(y.slot(), value());
  CHECK(recorded == 0);
}

TEST_CASE_FIXTURE(Fixture, "a constant that goes through it takes no gradient") {
  const X x = X::constant(value(), here.tape);
  const X y = recompute(function, x);
  here.tape.backward(y.slot(), value());
  CHECK(recorded == 1);
  CHECK_FALSE(here.tape.has_gradient(x.slot()));
}

TEST_CASE_FIXTURE(Fixture, "an input that is used beside it receives both gradients") {
  const auto gradient = [&](auto f) {
    const X x(value(), here.tape);
    const X y = f(x) * x;
    here.tape.backward(y.slot(), value());
    auto dx = here.tape.take<double, 2>(x.slot(), x.shape());
    here.tape.clear();
    return dx;
  };
  CHECK(same_bits(gradient([&](const X& x) { return recompute(function, x); }), gradient(function)));
}
