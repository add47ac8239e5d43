// SPDX-License-Identifier: Apache-2.0
/// A row of the table of operators, forward and backward on any device, and its values against its formula.
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <laws/difference.hpp>
#include <laws/operator_rows.hpp>
#include <laws/vjp.hpp>

namespace dspp::laws {

inline constexpr Shape<3> full_shapes[] = {{{2, 3, 4}}, {{1, 1, 1}}, {{3, 1, 7}}, {{2, 5, 33}}, {{4, 70, 1}}};
inline constexpr Shape<3> empty_shapes[] = {{{0, 3, 4}}, {{2, 0, 4}}, {{2, 3, 0}}};

/// Normals in f64, or for rows that need it |x| + 1/2.
inline Tensor<double, 3> row_input(const Shape<3>& shape, bool positive, Pool& pool) {
  auto x = random<double>(shape, pool, 8);
  for (Size i = 0; positive && i < x.count(); ++i) x.data()[i] = std::abs(x.data()[i]) + 0.5;
  return x;
}

struct Passed {
  std::vector<double> y, dx;
  Shape<3> shape;
};

/// y and dx of a row on D, where dy has the same numbers everywhere.
template <class T, class D>
Passed pass(const OperatorRow<T, D>& row, const Shape<3>& shape, Context<D>& context) {
  const auto on_host = [](const auto& x) {
    std::vector<double> host;
    if (x) x.read([&](const T* from) { host.assign(from, from + x.count()); });
    return host;
  };
  Pool host;
  const auto numbers = row_input(shape, row.positive, host);
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

/// y is what the row's formula says of x, of elements of T.
template <class T, class D>
void check_row_values(const OperatorRow<T, D>& row, const Shape<3>& shape, const Passed& passed, double bound) {
  Pool host;
  Elements x{shape, {}};
  const auto numbers = row_input(shape, row.positive, host);
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

}  // namespace dspp::laws
