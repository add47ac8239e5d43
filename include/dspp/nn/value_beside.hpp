// SPDX-License-Identifier: Apache-2.0
/// A parameter as a Variable, for operators.
#pragma once

#include <type_traits>

#include <dspp/nn/layer.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/copy.hpp>

namespace dspp {

namespace detail {
// What does not depend on the policy is instantiated once for an element type.
template <class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> copy_of(const Parameter<T, Rank, D>& parameter) {
  const auto value = parameter.value();
  auto copy = Tensor<T, Rank, D>::uninitialized(value.shape(), value.memory(), Category::activations, "value_beside");
  ops::copy_into(copy, 0, value);
  return copy;
}
template <class T, int Rank, Device D>
constexpr auto value_backward(const Parameter<T, Rank, D>& parameter) {
  return [&parameter](Tape<D>&, const Tensor<T, Rank, D>& dy) {
    const Size count = dy.count();
    parameter.accumulate([&](auto into, Write how) {
      ops::sum_rows_into(into.reshape(dspp::shape(count)), how, dy.reshape(dspp::shape(Size{1}, count)));
    });
  };
}
}  // namespace detail

/// The value of a whole parameter as operators take it beside x: `x * value_beside(x, gain)`. What is computed from it
/// gives the parameter its gradient.
///
/// Placement   Invariant beside an Invariant x, else Replicate; Cp does not cut it
/// Memory      a copy of the parameter, which outlives the visit to its unit
/// Throws      Error(placement) for a parameter that Tp cuts; as Parameter::value and register_use
template <Tracked X, class T, int Rank, Device D>
constexpr auto value_beside(const X& x, const Parameter<T, Rank, D>& parameter) {
  static_assert(
      std::is_same_v<typename X::DeviceType, D>,
      "dspp: value_beside needs a parameter on the device of the value, but it is on another. Give the layers "
      "one policy.");
  constexpr bool invariant = std::is_same_v<typename X::State, Invariant>;
  if (parameter.cut.parts > 1)
    fail(ErrorCode::placement, std::string("dspp: value_beside needs a parameter that every rank has whole, but ") +
                                   parameter.label + " is cut over Tp. Describe it without a Cut.");
  using State = std::conditional_t<invariant, Invariant, Replicate>;
  using Y = Variable<T, Rank, D, Placed<On<Tp<X::Placement::tp_degree>, State>>>;
  if (parameter.is_frozen()) return Y::constant(detail::copy_of(parameter), x.tape());
  Y y(detail::copy_of(parameter), x.tape());
  if (!x.tape().recording()) return y;
  parameter.register_use(x);
  y.on_backward(detail::value_backward(parameter));
  return y;
}

}  // namespace dspp
