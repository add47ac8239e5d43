// SPDX-License-Identifier: Apache-2.0
/// Operations: what a layer or an operator does whatever the policy and the placement, compiled once.
#pragma once

#include <utility>

#include <dspp/tensor/device.hpp>

namespace dspp {

/// `Operation::run` as a function that is no constant expression, so that dspp::compiled may hold it for a type.
template <class Operation, class Signature = decltype(Operation::run)>
struct CompiledOperation;
template <class Operation, class Result, class... Parameters>
struct CompiledOperation<Operation, Result(Parameters...)> {
  static Result run(Parameters... parameters);
};

/// Operation::run(arguments...). An operation is a struct with a DeviceType and a static, constexpr `run`.
template <class Operation, class... Arguments>
constexpr auto perform(Arguments&&... arguments) {
  if constexpr (Operation::DeviceType::real)
    return CompiledOperation<Operation>::run(std::forward<Arguments>(arguments)...);
  else
    return Operation::run(std::forward<Arguments>(arguments)...);
}

// ---------------------------------------------------------------------------------------------------------------------

template <class Operation, class Result, class... Parameters>
Result CompiledOperation<Operation, Result(Parameters...)>::run(Parameters... parameters) {
  return Operation::run(std::forward<Parameters>(parameters)...);
}

}  // namespace dspp

/// Declares the operations that `LIST(extern template, T)` names, of every element type that dspp::compiled has.
#if DSPP_LINKS_COMPILED()
#define DSPP_DECLARE_OPERATIONS(LIST) \
  LIST(extern template, double)       \
  LIST(extern template, float)        \
  LIST(extern template, bf16)         \
  LIST(extern template, f16)
#else
#define DSPP_DECLARE_OPERATIONS(LIST)
#endif
