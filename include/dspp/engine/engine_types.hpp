// SPDX-License-Identifier: Apache-2.0
/// What an Engine requires of its model and optimizer types, as error sentences.
#pragma once

#include <concepts>
#include <type_traits>

#include <dspp/launch/world.hpp>
#include <dspp/optim/optimizer.hpp>

namespace dspp::detail {

struct NameOfLoss {
  int loss;
};
template <class Model>
struct WithNameOfLoss : Model, NameOfLoss {};

/// True if a model has any member called loss: a second one makes the name ambiguous.
template <class Model>
constexpr bool has_loss() {
  if constexpr (std::is_final_v<Model>)
    return true;
  else
    return !requires {
      &WithNameOfLoss<Model>::loss;
    };
}

/// What an Engine of element type T calls; the concept Optimizer requires it for all types.
template <class O, class T>
concept Updates = HasUpdate<O, Compute<T>> && requires(const O& optimizer) {
  { O::moment_count } -> std::convertible_to<int>;
  { optimizer.lr } -> std::convertible_to<double>;
};

template <class Model, class O>
constexpr bool check_engine_types() {
  static_assert(has_loss<Model>(),
                "dspp: Engine needs a model with loss(tokens, targets), but this one has no member loss. Add one that "
                "returns Loss<P>, as Gpt does.");
  static_assert(Updates<O, typename Model::Element>,
                "dspp: Engine needs an optimizer with moment_count, lr and rule<S>(scalars) const, but this one "
                "lacks one of them. See the concept Optimizer.");
  if constexpr (Updates<O, typename Model::Element>)
    static_assert(O::moment_count >= 0 && O::moment_count <= max_moments,
                  "dspp: Engine needs an optimizer of at most two moments a parameter, but this one has another "
                  "moment_count. Keep at most two, or none.");
  return true;
}

/// A compile error: a world of policy Q was given where P is needed.
template <class P, class Q>
constexpr World<P>& world_of(World<Q>& world) {
  static_assert(std::is_same_v<P, Q>,
                "dspp: Engine needs a World of its model's policy, but this one is of another. Give run and the model "
                "one policy.");
  return world_of<P>(world);
}

}  // namespace dspp::detail
