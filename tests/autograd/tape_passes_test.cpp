// SPDX-License-Identifier: Apache-2.0
// Every operation with a variable of another tape or pass is an error sentence, never a wrong gradient.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/recompute.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/shape_operators.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X = Dense<double, 2>;

namespace {

Tensor<double, 2> numbers(TestRank& here, std::uint32_t seed = 8) {
  return random<double>(shape(4, 4), here.pool, seed);
}

/// Every operation on two variables, and operations on one that capture the other.
using Operation = std::function<X(const X&, const X&)>;
const std::map<std::string, Operation> operators{
    {"a + b", [](const X& a, const X& b) { return a + b; }},
    {"a b", [](const X& a, const X& b) { return a * b; }},
    {"matmul", [](const X& a, const X& b) { return matmul(a, b); }},
    {"concat", [](const X& a, const X& b) { return slice<0>(concat<0>(a, b), 2, 4); }},
    {"scaled", [](const X& a, const X& b) { return a + 2.0 * b; }},
    {"gelu", [](const X& a, const X& b) { return a + gelu(b); }},
    {"softmax", [](const X& a, const X& b) { return a * softmax(b); }},
    {"transpose", [](const X& a, const X& b) { return a * transpose<1, 0>(b); }},
    {"reshape", [](const X& a, const X& b) { return a * reshape(reshape(b, shape(2, 8)), shape(4, 4)); }},
    {"split",
     [](const X& a, const X& b) {
       const auto [left, right] = split<1, 2>(b);
       return a + concat<1>(right, left);
     }},
    {"cast", [](const X& a, const X& b) { return a * cast<double>(cast<float>(b)); }},
    {"recompute of the one, the other captured",
     [](const X& a, const X& b) { return recompute([b](const X& x) { return x * b + b; }, a); }},
    {"recompute of both in turn",
     [](const X& a, const X& b) {
       return recompute([](const X& x) { return silu(x); }, a) * recompute([](const X& x) { return gelu(x); }, b);
     }},
};

/// The origin of a variable outside the pass, and the error sentence's words for it.
struct Elsewhere {
  std::string words;
  std::function<X(TestRank&, Tape<Cpu>& other)> variable;
};
const std::map<std::string, Elsewhere> elsewheres{
    {"an earlier pass",
     {"an earlier pass of the tape",
      [](TestRank& here, Tape<Cpu>&) {
        const X x(numbers(here), here.tape), y = 2.0 * x;
        here.tape.backward(y.slot(), numbers(here));
        here.tape.clear();
        return y;
      }}},
    {"a pass that was given up",
     {"an earlier pass of the tape",
      [](TestRank& here, Tape<Cpu>&) {
        const X x(numbers(here), here.tape);
        here.tape.clear();
        return x;
      }}},
    {"another tape", {"another tape", [](TestRank& here, Tape<Cpu>& other) { return X(numbers(here), other); }}},
    {"a tape that stood in the same place",
     {"",
      [](TestRank& here, Tape<Cpu>&) {
        here.tape.~Tape();
        const X x(numbers(here), *new (&here.tape) Tape<Cpu>(here.context));
        here.tape.~Tape();
        new (&here.tape) Tape<Cpu>(here.context);
        return x;
      }}},
    {"before the backward of the same pass",
     {"that has run",
      [](TestRank& here, Tape<Cpu>&) {
        const X x(numbers(here), here.tape), y = 2.0 * x;
        here.tape.backward(y.slot(), numbers(here));
        return y;
      }}},
    {"a part of before the backward of the same pass",
     {"that has run",
      [](TestRank& here, Tape<Cpu>&) {
        const auto [part, rest] = split<0, 2>(X(random<double>(shape(8, 4), here.pool, 3), here.tape));
        here.tape.backward(rest.slot(), numbers(here));
        return part;
      }}},
    {"inside of what is recomputed",
     {"needs to stay inside",
      [](TestRank& here, Tape<Cpu>&) {
        X inside;
        const auto leak = [&](const X& x) { return inside = gelu(x); };
        recompute(leak, X(numbers(here), here.tape));
        return inside;
      }}},
};

}  // namespace

TEST_CASE("a variable of another tape or pass in any operation, on either side, is an error sentence") {
  for (const auto& origin : elsewheres)
    for (const auto& named : operators)
      for (const bool first : {false, true}) {
        const std::string &from = origin.first, &name = named.first;
        const Elsewhere& elsewhere = origin.second;
        const Operation& operation = named.second;
        CAPTURE(from);
        CAPTURE(name);
        CAPTURE(first);
        TestRank here;
        Tape<Cpu> other(here.context);
        std::string words;
        try {
          const X stranger = elsewhere.variable(here, other);
          const X x(numbers(here, 9), here.tape);
          const X y = first ? operation(stranger, 3.0 * x) : operation(3.0 * x, stranger);
          here.tape.backward((x + y).slot(), numbers(here));
        } catch (const Error& error) {
          words = error.what();
          CHECK(error.code() == ErrorCode::state);
        }
        CHECK(words.starts_with("dspp: "));
        CHECK(words.find(elsewhere.words) != std::string::npos);
      }
}

TEST_CASE("its slot is refused by take, has_gradient and backward; as a constant its value may be used") {
  TestRank here;
  const X carried(numbers(here), here.tape);
  here.tape.clear();
  const X x(numbers(here), here.tape);
  CHECK_THROWS_AS((here.tape.take<double, 2>(carried.slot(), carried.shape())), Error);
  CHECK_THROWS_AS(here.tape.has_gradient(carried.slot()), Error);
  CHECK_THROWS_AS(here.tape.backward(carried.slot(), numbers(here)), Error);
  const X y = 3.0 * x + X::constant(carried.value(), here.tape);
  auto ones = numbers(here);
  ones.fill(1);
  here.tape.backward(y.slot(), std::move(ones));
  CHECK(here.tape.take<double, 2>(x.slot(), x.shape()).data()[5] == 3);
}

TEST_CASE("an input may be used after a backward of its pass: its gradients add up until they are taken") {
  TestRank here;
  const X x(numbers(here), here.tape);
  auto ones = numbers(here);
  ones.fill(1);
  here.tape.backward((2.0 * x).slot(), ones);
  here.tape.backward((3.0 * x).slot(), ones);
  CHECK(here.tape.take<double, 2>(x.slot(), x.shape()).data()[15] == 5);
}

TEST_CASE("a gradient of another shape or element type than its variable's is an error, in any order") {
  TestRank here;
  const Slot slot = here.tape.new_slot<double>(shape(4, 4));
  const auto refused = [&](auto gradient) {
    try {
      here.tape.give(slot, gradient);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::shape);
      return std::string(error.what());
    }
    return std::string();
  };
  const auto all = [&] {
    CHECK(refused(random<double>(shape(4, 5), here.pool, 1)) ==
          "dspp: a gradient needs the shape and element type of its variable, [4, 4] of f64, but it is [4, 5] of f64. "
          "reshape or cast it before tape.give(slot, dx).");
    CHECK(refused(random<double>(shape(2, 8), here.pool, 1)).find("it is [2, 8] of f64.") != std::string::npos);
    CHECK(refused(random<double>(shape(16), here.pool, 1)).find("it is [16] of f64.") != std::string::npos);
    CHECK(refused(random<double>(shape(1, 4, 4), here.pool, 1)).find("it is [1, 4, 4] of f64.") != std::string::npos);
    CHECK(refused(random<double>(shape(1, 1), here.pool, 1)).find("it is [1, 1] of f64.") != std::string::npos);
    CHECK(refused(random<float>(shape(4, 4), here.pool, 1)).find("it is [4, 4] of f32.") != std::string::npos);
    CHECK(refused(Tensor<double, 0>::zeros({}, here.pool)).find("it is [] of f64.") != std::string::npos);
  };
  all();
  here.tape.give(slot, numbers(here));
  all();
  CHECK_THROWS_AS((here.tape.take<double, 2>(slot, shape(2, 8))), Error);
  CHECK_THROWS_AS((here.tape.take<float, 2>(slot, shape(4, 4))), Error);
  CHECK(same_bits(here.tape.take<double, 2>(slot, shape(4, 4)), numbers(here)));
}

TEST_CASE("a tape distinguishes more kinds of variables than its list holds") {
  TestRank here;
  std::vector<Slot> slots;
  for (int round = 0; round < 2; ++round)
    for (Size n = 1; n < 40; ++n) slots.push_back(here.tape.new_slot<double>(shape(n, 3)));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Size n = static_cast<Size>(i % 39) + 1;
    CHECK_THROWS_AS(here.tape.give(slots[i], Tensor<double, 2>::zeros(shape(n + 1, 3), here.pool)), Error);
    here.tape.give(slots[i], Tensor<double, 2>::zeros(shape(n, 3), here.pool));
  }
}
