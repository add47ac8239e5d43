// SPDX-License-Identifier: Apache-2.0
/// Root-mean-square normalisation over the features.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/nn/sum_and_norm.hpp>
#include <dspp/ops/rms_norm.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
/// Adds dx to the gradient that x has.
template <class T, int Rank, Device D>
struct RmsNormBackward {
  const Parameter<T, 1, D>& weight;
  Slot slot;
  Tensor<T, Rank, D> x;
  Tensor<Compute<T>, 1, D> inverse_root;

  constexpr void operator()(Tape<D>& tape, Tensor<T, Rank, D> dy) {
    Tensor<T, Rank, D> earlier = tape.template take<T>(slot, x.shape()), dx;
    weight.accumulate([&](auto dgamma, Write how) {
      dx = ops::rms_norm_vjp(x, weight.value(), inverse_root, std::move(dy), dgamma, how, std::move(earlier));
    });
    tape.give(slot, std::move(dx));
  }
};
/// The same if the result need not be kept.
template <class T, int Rank, Device D>
struct RecomputingRmsNorm : RmsNormBackward<T, Rank, D> {
  double epsilon;

  static constexpr bool is_recomputable() { return true; }
  constexpr Tensor<T, Rank, D> again(Tape<D>&, const Shape<Rank>&) const {
    return ops::rms_norm(this->x, this->weight.value(), epsilon).y;
  }
  constexpr const void* home() const { return this->weight.home; }
};
}  // namespace detail

namespace operations {
/// `partial`: see Parameter::used.
template <class T, int Rank, Device D, bool Recomputes = false>
struct RmsNorm {
  using DeviceType = D;
  using X = TapedTensor<T, Rank, D>;
  static constexpr X run(const X& x, const Parameter<T, 1, D>& weight, double epsilon, bool partial) {
    return on_tape(x, ops::rms_norm(x.value(), weight.value(), epsilon), weight, epsilon, partial);
  }
  static constexpr X on_tape(const X& x, ops::RmsNormResult<T, Rank, D>&& result, const Parameter<T, 1, D>& weight,
                             double epsilon, bool partial) {
    X y(std::move(result.y), x.tape());
    if (!x.tape().recording()) return y;
    weight.used(x.tape(), partial);
    detail::RmsNormBackward<T, Rank, D> backward{weight, x.slot(), x.value(), std::move(result.inverse_root)};
    if constexpr (Recomputes)
      y.on_backward(detail::RecomputingRmsNorm<T, Rank, D>{std::move(backward), epsilon});
    else
      y.on_backward(std::move(backward));
    return y;
  }
};
/// The sum takes the branch's block if nothing else has it.
template <class T, int Rank, Device D, bool Recomputes = false>
struct RmsNormOfSum {
  using DeviceType = D;
  using X = TapedTensor<T, Rank, D>;
  using Norm = RmsNorm<T, Rank, D, Recomputes>;
  static constexpr SumAndNorm<X> run(const X& x, X branch, const Parameter<T, 1, D>& weight, double epsilon,
                                     bool partial) {
    if (x.shape() != branch.shape() || x.tape().context().probe) {  // one is repeated, or each is to be seen by itself
      X sum = Sum<T, Rank, Rank, D>::run(x, branch, 1), norm = Norm::run(sum, weight, epsilon, partial);
      return {std::move(sum), std::move(norm)};
    }
    const Slot slot = branch.slot();
    auto result = ops::add_rms_norm(x.value(), std::move(branch).take_value(), weight.value(), epsilon);
    X sum = sum_on_tape(std::move(result.sum), x.tape(), x.slot(), slot);
    X norm = Norm::on_tape(sum, std::move(result.norm), weight, epsilon, partial);
    return {std::move(sum), std::move(norm)};
  }
};
}  // namespace operations

#define DSPP_RMS_NORM_OPERATIONS(TEMPLATE, T)                        \
  TEMPLATE struct CompiledOperation<operations::RmsNorm<T, 3, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::RmsNorm<T, 4, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::RmsNormOfSum<T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_RMS_NORM_OPERATIONS)

/// y = x / sqrt(mean of x^2 + epsilon) * gamma, the mean over the last dimension.
///
///   x [..., n]   gamma [n]   y [..., n]
///
/// Placement   features whole; any other state is kept. Beside a Shard (the sequence under SequenceParallel) gamma
///             enters as Replicate, and its gradient is summed over Tp before the step.
/// Memory      keeps x, and a number per row; the result: see SelectiveRecompute
/// Source      Zhang and Sennrich 2019, arXiv:1910.07467
template <class P>
struct RmsNorm : Layer<P> {
  ParameterOf<P, 1> weight;
  double epsilon;

  constexpr explicit RmsNorm(Size width, double epsilon_ = 1e-6)
      : weight("RmsNorm weight", dspp::shape(width), Initial::ones()), epsilon(epsilon_) {
    weight.decays = false;
    require(epsilon >= 0, "dspp: RmsNorm needs an epsilon of at least 0, but got less, or NaN. Leave it out for 1e-6.");
  }

  constexpr void visit(auto&& f) { f("weight", weight); }

  template <Tracked X>
  constexpr X operator()(const X& x) const {
    check_value_of<P, X>();
    check_whole_features<state_of<X>, X::rank>();
    check_whole_over_cp<typename X::Placement, -1, X::rank>();
    using Norm = operations::RmsNorm<ElementOf<P>, X::rank, DeviceOf<P>, P::recomputes_norms>;
    if constexpr (is_value_of<P, X>)
      return X(perform<Norm>(x, weight, epsilon, is_partial_beside<X>), x);
    else
      return x;
  }

  /// {x + branch, the norm of it}, with the bits of both, in one pass: `auto [y, z] = norm2.of_sum(x, attention(...))`.
  ///
  /// Placement   as + and the norm
  /// Memory      keeps the sum, and a number per row; the sum lies where a moved branch did
  template <Tracked X, Tracked Branch>
  constexpr auto of_sum(const X& x, Branch branch) const {
    using OfSum = operations::RmsNormOfSum<typename X::Element, X::rank, typename X::DeviceType, P::recomputes_norms>;
    return detail::sum_and_norm<P, OfSum>(*this, x, std::move(branch), weight);
  }
  constexpr void describe(auto&& f) const { f("epsilon", epsilon); }
};

}  // namespace dspp
