// SPDX-License-Identifier: Apache-2.0
/// A residual sum and its norm, in one pass.
#pragma once

#include <type_traits>
#include <utility>

#include <dspp/autograd/operators.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/ops/sum_and_norm.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
/// A norm's of_sum by Operation, which takes the norm's parameters. What is not of one type, or is wrong, takes two
/// operations, which say so. (No constrained template template parameter: clang 14 cannot precompile one.)
template <class P, class Operation, class Norm, class X, class Branch, class... Of>
constexpr auto sum_and_norm(const Norm& norm, const X& x, Branch branch, const Of&... parameters) {
  if constexpr (std::is_same_v<X, Branch> && is_value_of<P, X>) {
    check_sum_of<X, X>();
    check_whole_features<state_of<X>, X::rank>();
    check_whole_over_cp<typename X::Placement, -1, X::rank>();
    require_broadcast(x, branch, "+");
    require_no_weights(branch);
    auto both = perform<Operation>(x, std::move(branch), parameters..., norm.epsilon, is_partial_beside<X>);
    return SumAndNorm<X>{X(std::move(both.sum), x), X(std::move(both.norm), x)};
  } else {
    auto sum = x + branch;
    auto of_sum = norm(sum);
    return SumAndNorm<decltype(sum)>{std::move(sum), std::move(of_sum)};
  }
}
}  // namespace detail

}  // namespace dspp
