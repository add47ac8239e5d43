// SPDX-License-Identifier: Apache-2.0
/// What an Engine requires of its model and optimizer types, as error sentences.
#pragma once

#include <concepts>
#include <type_traits>

#include <dspp/engine/batch.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/optim/optimizer.hpp>

namespace dspp {
template <class Engine>
class Profiling;
}

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

template <class O>
concept CountsMoments = requires {
  { O::moment_count } -> std::convertible_to<int>;
};
template <class O>
concept HasLearningRate = requires(const O& optimizer) {
  { optimizer.lr } -> std::convertible_to<double>;
};

/// What an Engine with state of type S calls; the concept IsOptimizer requires it for all types. A sentence for each
/// part.
template <class O, class S>
constexpr bool check_optimizer_type() {
  static_assert(CountsMoments<O>,
                "dspp: Engine needs an optimizer with the number of its moments, but this one has none. Add static "
                "constexpr int moment_count = 0, 1 or 2.");
  static_assert(HasLearningRate<O>,
                "dspp: Engine needs an optimizer with a learning rate, but this one has no member lr. Add double lr.");
  static_assert(
      HasUpdate<O, S>,
      "dspp: Engine needs an optimizer with rule<S>(scalars) const, a functor that takes an UpdateBlock of any "
      "length, but this one has none that fits. Write it as in the concept IsOptimizer, or direction and ratio.");
  if constexpr (CountsMoments<O>)
    static_assert(O::moment_count >= 0 && O::moment_count <= max_moments,
                  "dspp: Engine needs an optimizer of at most two moments a parameter, but this one has another "
                  "moment_count. Keep at most two, or none.");
  if constexpr (asks_for_matrices<O>) {
    static_assert(
        HasMatrixUpdate<O, S> && HasRule<O, S> && !HasDirection<O, S>,
        "dspp: Engine needs an optimizer of matrices with matrix_direction, matrix_update, matrix_rule, and rule "
        "for all else, but this one lacks one of them, or has direction, too. See Muon.");
    static_assert(O::matrix_moment_count >= 0 && O::matrix_moment_count <= max_moments,
                  "dspp: Engine needs an optimizer of at most two moments a matrix, but this one has another "
                  "matrix_moment_count. Keep at most two, or none.");
  }
  return true;
}

/// P's update may be delayed, or begin in backward, by an optimizer of type O.
template <class P, class O>
constexpr bool check_delayed() {
  using S = Compute<typename P::Element>;
  static_assert(
      !(P::delays_updates || P::speculates || P::selects_rows) || !(HasDirection<O, S> || asks_for_matrices<O>),
      "dspp: Delayed<1>, Speculative and ZenFlow need an optimizer that updates each element by itself, as AdamW does, "
      "since the ranks do not meet in its update, but this one asks for norms or matrices. Take another, or "
      "drop it.");
  return true;
}

template <class Model, class O>
constexpr bool check_engine_types() {
  static_assert(has_loss<Model>(),
                "dspp: Engine needs a model with loss(tokens, targets), but this one has no member loss. Add one that "
                "returns Loss<P>, as Gpt does.");
  static_assert(loss_fits<Model>(),
                "dspp: Engine needs a model with loss(tokens, targets) const or loss(const Mine<P>& batch) const, but "
                "this one's has other parameters, a generic batch, or is not const. See docs/own_model.md.");
  return check_delayed<typename Model::policy, O>() && check_optimizer_type<O, Compute<typename Model::Element>>();
}

template <class E>
constexpr void check_profiling() {
  static_assert(
      requires { sizeof(Profiling<E>); },
      "dspp: Engine::profile needs the header of what it returns, but it is not included. Include "
      "<dspp/engine/profiling.hpp>.");
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
