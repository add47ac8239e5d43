// SPDX-License-Identifier: Apache-2.0
// Every row of the table of operators: values against naive formulas, gradients against finite differences, on paper as
// on the Cpu, and on a device whose memory the host cannot touch.
#include <doctest/doctest.h>

#include <laws/layer_gradient.hpp>
#include <laws/operator_rows.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Shape<3> full_shapes[] = {{{2, 3, 4}}, {{1, 1, 1}}, {{3, 1, 7}}, {{2, 5, 33}}, {{4, 70, 1}}};
constexpr Shape<3> empty_shapes[] = {{{0, 3, 4}}, {{2, 0, 4}}, {{2, 3, 0}}};

/// Normals in f64, or for rows that need it |x| + 1/2.
Tensor<double, 3> values(const Shape<3>& shape, bool positive, Pool& pool) {
  auto x = random<double>(shape, pool, 8);
  for (Size i = 0; positive && i < x.count(); ++i) x.data()[i] = std::abs(x.data()[i]) + 0.5;
  return x;
}

struct Passed {
  std::vector<double> y, dx;
  Shape<3> shape;
};

template <class T, class D, int Rank>
std::vector<double> on_host(const Tensor<T, Rank, D>& x) {
  std::vector<double> host;
  if (x) x.read([&](const T* from) { host.assign(from, from + x.count()); });
  return host;
}

/// y and dx of a row on D, where dy has the same numbers everywhere.
template <class T, class D>
Passed pass(const OperatorRow<T, D>& row, const Shape<3>& shape, Context<D>& context) {
  Pool host;
  const auto numbers = values(shape, row.positive, host);
  Tape<D> tape(context);
  auto x = Tensor<T, 3, D>::uninitialized(shape, *context.memory);
  x.write([&](T* to) {
    for (Size i = 0; i < shape.count(); ++i) to[i] = static_cast<T>(numbers.data()[i]);
  });
  RowValue<T, D> in(x, tape);
  auto y = row.of(in);
  Passed passed{on_host(y.value()), {}, y.shape()};
  const Slot output = y.slot();
  const auto dy_shape = y.shape();
  y = {};
  auto dy = Tensor<T, 3, D>::uninitialized(dy_shape, *context.memory);
  dy.write([&](T* to) {
    const auto seed = random<double>(dy_shape, host, 9);
    for (Size i = 0; i < dy_shape.count(); ++i) to[i] = static_cast<T>(seed.data()[i]);
  });
  tape.backward(output, std::move(dy));
  passed.dx = on_host(tape.template take<T, 3>(in.slot(), in.shape()));
  return passed;
}

template <class T>
void check_values(double bound) {
  for (const auto& row : operator_rows<T, Cpu>())
    for (const Shape<3>& shape : full_shapes) {
      CAPTURE(row.name);
      CAPTURE(to_string(shape));
      TestRank here;
      const Passed passed = pass(row, shape, here.context);
      Elements x{shape, {}};
      const auto numbers = values(shape, row.positive, here.pool);
      for (Size i = 0; i < shape.count(); ++i) x.at.push_back(static_cast<double>(static_cast<T>(numbers.data()[i])));
      double scale = 4;  // what sums cancel
      for (double a : x.at) scale += std::abs(a) / 4;
      Worst worst;
      std::size_t at = 0;
      for (Size i = 0; i < passed.shape[0]; ++i)
        for (Size j = 0; j < passed.shape[1]; ++j)
          for (Size k = 0; k < passed.shape[2]; ++k) {
            const double expected = row.expected(x, i, j, k);
            worst.add(difference(passed.y.at(at++), expected, std::max(scale, std::abs(expected))));
          }
      CHECK(worst.value() < bound);
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
      check_variable_gradient(here, row.of, values(shape, row.positive, here.pool));
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
