// SPDX-License-Identifier: Apache-2.0
// Every row of the table of operators: values against naive formulas, gradients against finite differences, on paper as
// on the Cpu, and on a device whose memory the host cannot touch.
#include <doctest/doctest.h>

#include <laws/layer_gradient.hpp>
#include <laws/operator_pass.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class T>
void check_values(double bound) {
  for (const auto& row : operator_rows<T, Cpu>())
    for (const Shape<3>& shape : full_shapes) {
      CAPTURE(row.name);
      CAPTURE(to_string(shape));
      TestRank here;
      check_row_values(row, shape, pass(row, shape, here.context), bound);
    }
}

}  // namespace

TEST_CASE("the values of every operator are those of its formula, in every element type") {
  check_values<double>(1e-14);
  check_values<float>(16 * rounding<float>);
  check_values<bf16>(16 * rounding<bf16>);
  check_values<f16>(16 * rounding<f16>);
}

TEST_CASE("the gradient of every operator is a finite difference") {
  for (const auto& row : operator_rows<double, Cpu>())
    for (const Shape<3>& shape : {full_shapes[0], full_shapes[1], full_shapes[2], shape(2, 3, 37)}) {
      CAPTURE(row.name);
      CAPTURE(to_string(shape));
      TestRank here;
      check_variable_gradient(here, row.of, row_input(shape, row.positive, here.pool));
      CHECK(here.pool.live() == 0);
    }
}

TEST_CASE("every operator passes values without elements, forward and backward") {
  for (const auto& row : operator_rows<double, Cpu>())
    for (const Shape<3>& shape : empty_shapes) {
      if (row.needs_elements) continue;
      CAPTURE(row.name);
      CAPTURE(to_string(shape));
      TestRank here;
      CHECK(pass(row, shape, here.context).dx.empty());
    }
}

TEST_CASE("every operator allocates on paper what it does on the Cpu") {
  const auto check = []<class T>(T) {
    const auto cpu = operator_rows<T, Cpu>();
    const auto paper = operator_rows<T, Meta>();
    for (std::size_t i = 0; i < cpu.size(); ++i)
      for (const Shape<3>& shape : {full_shapes[3], empty_shapes[0]}) {
        if (shape.count() == 0 && cpu[i].needs_elements) continue;
        CAPTURE(cpu[i].name);
        TestRank here;
        Ledger ledger;
        Recorder<> group(0, 1);
        Context<Meta> context{.memory = &ledger, .along = {.tp = &group}};
        pass(cpu[i], shape, here.context);
        pass(paper[i], shape, context);
        CHECK(here.pool.peak() == ledger.peak());
        CHECK(here.pool.live() == 0);
        CHECK(ledger.live() == 0);
      }
  };
  check(double());
}

TEST_CASE("a custom_op takes lambdas, and a pair of gradients, in place of functors") {
  TestRank here;
  const auto passed_by = [&](auto op) {
    return pass(OperatorRow<double, Cpu>{"custom_op", op, {}}, full_shapes[3], here.context);
  };
  const auto lambdas = passed_by([](const auto& x) {
    constexpr auto of_two =
        custom_op([](auto a, auto b) { return a * math::exp(-b * b); },
                  [](auto, auto b, auto y, auto dy) { return std::pair(math::exp(-b * b) * dy, -2 * b * y * dy); });
    constexpr auto of_one =
        custom_op([](auto a, auto c) { return c * a / (1 + a * a); },
                  [](auto a, auto y, auto dy, auto c) { return dy * (c - 2 * a * y) / (1 + a * a); }, 3);
    return of_two(x, of_one(x));
  });
  const auto functors = passed_by([](const auto& x) { return bell(x, witch(x)); });
  CHECK(lambdas.y == functors.y);
  CHECK(lambdas.dx == functors.dx);
}

TEST_CASE("every operator works on a device whose memory the host cannot touch, with the bits of the Cpu") {
  const auto cpu = operator_rows<float, Cpu>();
  const auto far = operator_rows<float, Far>();
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CAPTURE(cpu[i].name);
    TestRank here;
    FarMemory memory;
    Pool pool(0, &memory);
    pool.poison(true);
    AnyCommunicator alone(Recorder(0, 1));
    Context<Far> context{.memory = &pool, .along = {.tp = &alone}};
    const Passed near = pass(cpu[i], full_shapes[3], here.context), there = pass(far[i], full_shapes[3], context);
    CHECK(near.y == there.y);
    CHECK(near.dx == there.dx);
  }
}
