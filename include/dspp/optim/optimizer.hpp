// SPDX-License-Identifier: Apache-2.0
/// The concept of an optimizer: a description with a rule that updates elements.
#pragma once

#include <concepts>

#include <dspp/base/error.hpp>
#include <dspp/ops/update.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

namespace detail {
/// How devices call a rule: const, on blocks of 1 element and of 8.
template <class Rule, class S>
concept RuleOf = requires(const Rule& rule, UpdateBlock<S, 1>& one, UpdateBlock<S, 8>& many) {
  rule(one);
  rule(many);
};
template <class O, class S>
concept HasRule = requires(const O& optimizer, const UpdateScalars& scalars) {
  { optimizer.template rule<S>(scalars) } -> RuleOf<S>;
};
template <class O, class S>
concept HasDirection = requires(const O& optimizer, const UpdateScalars& scalars) {
  { optimizer.template direction<S>(scalars) } -> RuleOf<S>;
  { optimizer.ratio(1.0, 1.0) } -> std::convertible_to<double>;
};
/// What an optimizer of whole matrices has besides.
template <class O, class S>
concept HasMatrixUpdate = requires(const O& optimizer, const UpdateScalars& scalars, const Tensor<S, 2, Cpu>& update) {
  { O::matrix_moment_count } -> std::convertible_to<int>;
  { optimizer.template matrix_direction<S>(scalars) } -> RuleOf<S>;
  { optimizer.template matrix_rule<S>(scalars, MatrixShape{}) } -> RuleOf<S>;
  { optimizer.matrix_update(update) } -> std::same_as<Tensor<S, 2, Cpu>>;
};
/// True if an optimizer updates matrices as a whole. One that lacks a part of it is an error of Engine's.
template <class O>
inline constexpr bool asks_for_matrices = requires {
  O::matrix_moment_count;
};
template <class O, class S>
concept HasUpdate = HasRule<O, S> || HasDirection<O, S>;
}  // namespace detail

/// A literal aggregate that allocates nothing. `rule<S>(scalars)` gives a functor that updates a block of elements, S
/// being f32 or f64:
///
///   struct SignSgd {
///     static constexpr int moment_count = 0;
///     double lr = 1e-3;
///     template <class S>
///     auto rule(const UpdateScalars& scalars) const {
///       return [rate = static_cast<S>(scalars.lr)](auto& block) {
///         for (int k = 0; k < block.length; ++k)
///           block.new_value[k] = block.value[k] - (block.gradient[k] > 0 ? rate : -rate);
///       };
///     }
///   };
///
/// A rule gives the same bits for every split of a shard into ranges and on any number of threads. With a `name` and a
/// `describe(f)` that calls f("lr", lr) for each hyper-parameter, checkpoints record whose moments they hold. With a
/// `check()` that throws, hyper-parameters are checked before a training begins.
///
/// An optimizer may ask for the norms of whole parameters, whatever shards they lie in. In place of `rule` it has
/// `direction<S>(scalars)`, a functor of the same form, after which new_value is the update u, and
/// `ratio(parameter_norm, update_norm)`, which gives r in p = p - lr r u: see Lamb.
///
/// An optimizer may ask for whole matrices. Beside `rule`, for all other parameters, it has `matrix_moment_count`,
/// `matrix_direction<S>(scalars)`, a functor after which new_value is an update u, `matrix_update(u)`, which gives
/// another [rows, columns] by operations of ops/, and `matrix_rule<S>(scalars, MatrixShape)`, a functor whose gradient
/// is that: see Muon. matrix_direction sees gradient and moments (value is 0), matrix_rule value and gradient.
///
/// Where a group has a weight_decay, the member weight_decay is set to it; where an inner member decays, too,
/// `set_weight_decay(decay)` does that.
template <class O>
concept IsOptimizer = detail::HasUpdate<O, float> && detail::HasUpdate<O, double> && requires(const O& optimizer) {
  { O::moment_count } -> std::convertible_to<int>;
  { optimizer.lr } -> std::convertible_to<double>;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// True if finite and at least 0.
constexpr bool is_at_least_zero(double value) {
  return value >= 0 && value - value == 0;
}
/// True if in [0, 1).
constexpr bool is_decay_rate(double value) {
  return value >= 0 && value < 1;
}
}  // namespace detail

/// The most moments that an optimizer keeps of any parameter.
template <class O>
constexpr int most_moments() {
  if constexpr (detail::asks_for_matrices<O>)
    return O::matrix_moment_count > O::moment_count ? O::matrix_moment_count : O::moment_count;
  else
    return O::moment_count;
}

/// Throws   Error(usage) unless it is finite and at least 0: also for a schedule's rate
constexpr void check_learning_rate(double rate) {
  // clang-format off
  require(detail::is_at_least_zero(rate), "dspp: a learning rate needs to be a number of at least 0, but got another. Look at lr, or at what the schedule gives.");
  // clang-format on
}

/// Throws   Error(usage) for hyper-parameters out of range
template <class O>
constexpr void check_optimizer(const O& optimizer) {
  check_learning_rate(optimizer.lr);
  if constexpr (requires { optimizer.check(); }) optimizer.check();
}

}  // namespace dspp
