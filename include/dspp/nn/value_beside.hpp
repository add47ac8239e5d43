// SPDX-License-Identifier: Apache-2.0
/// A parameter as a Variable, for operators.
#pragma once

#include <type_traits>

#include <dspp/nn/layer.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/copy.hpp>

namespace dspp {

namespace detail {
[[noreturn]] void refuse_cut_beside(const char* label);
}

namespace operations {
/// A copy of the parameter, a constant if it is frozen. `partial`: see Parameter::used.
template <class T, int Rank, Device D>
struct ValueBeside {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(Tape<D>& tape, const Parameter<T, Rank, D>& parameter, bool partial) {
    const auto value = parameter.value();
    auto copy = Tensor<T, Rank, D>::uninitialized(value.shape(), value.memory(), Category::activations, "value_beside");
    ops::copy_into(copy, 0, value);
    if (parameter.is_frozen()) return {std::move(copy), tape, Slot{}, 0};
    TapedTensor<T, Rank, D> y(std::move(copy), tape);
    if (!tape.recording()) return y;
    parameter.used(tape, partial);
    y.on_backward([&parameter](Tape<D>&, const Tensor<T, Rank, D>& dy) {
      const Size count = dy.count();
      parameter.accumulate([&](auto into, Write how) {
        ops::sum_rows_into(into.reshape(dspp::shape(count)), how, dy.reshape(dspp::shape(Size{1}, count)));
      });
    });
    return y;
  }
};
}  // namespace operations

#define DSPP_VALUE_BESIDE_OPERATIONS(TEMPLATE, T)                        \
  TEMPLATE struct CompiledOperation<operations::ValueBeside<T, 1, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::ValueBeside<T, 2, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_VALUE_BESIDE_OPERATIONS)

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
  if (parameter.cut.parts > 1) detail::refuse_cut_beside(parameter.label);
  using State = std::conditional_t<invariant, Invariant, Replicate>;
  using Y = Variable<T, Rank, D, Placed<On<Tp<X::Placement::tp_degree>, State>>>;
  return Y(perform<operations::ValueBeside<T, Rank, D>>(x.tape(), parameter, is_partial_beside<X>));
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_cut_beside(const char* label) {
  fail(ErrorCode::placement, std::string("dspp: value_beside needs a parameter that every rank has whole, but ") +
                                 label + " is cut over Tp. Describe it without a Cut.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
