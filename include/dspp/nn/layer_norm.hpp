// SPDX-License-Identifier: Apache-2.0
/// Layer normalisation over the features.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/nn/sum_and_norm.hpp>
#include <dspp/ops/layer_norm.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
/// Adds dx to the gradient that x has.
template <class T, int Rank, Device D>
struct LayerNormBackward {
  const Parameter<T, 1, D>&weight, &bias;
  Slot slot;
  Tensor<T, Rank, D> x;
  Tensor<Compute<T>, 1, D> mean, rstd;

  constexpr void operator()(Tape<D>& tape, Tensor<T, Rank, D> dy) {
    Tensor<T, Rank, D> earlier = tape.template take<T>(slot, x.shape()), dx;
    weight.accumulate_with(bias, [&](auto dgamma, Write how_gamma, auto dbeta, Write how_beta) {
      dx = ops::layer_norm_vjp(x, weight.value(), mean, rstd, std::move(dy), dgamma, how_gamma, dbeta, how_beta,
                               std::move(earlier));
    });
    tape.give(slot, std::move(dx));
  }
};
/// The same if the result need not be kept.
template <class T, int Rank, Device D>
struct RecomputingLayerNorm : LayerNormBackward<T, Rank, D> {
  double epsilon;

  static constexpr bool is_recomputable() { return true; }
  constexpr Tensor<T, Rank, D> again(Tape<D>&, const Shape<Rank>&) const {
    return ops::layer_norm(this->x, this->weight.value(), this->bias.value(), epsilon).y;
  }
  constexpr const void* home() const { return this->weight.home; }
};
}  // namespace detail

namespace operations {
/// `partial`: see Parameter::used.
template <class T, int Rank, Device D, bool Recomputes = false>
struct LayerNorm {
  using DeviceType = D;
  using X = TapedTensor<T, Rank, D>;
  static constexpr X run(const X& x, const Parameter<T, 1, D>& weight, const Parameter<T, 1, D>& bias, double epsilon,
                         bool partial) {
    return on_tape(x, ops::layer_norm(x.value(), weight.value(), bias.value(), epsilon), weight, bias, epsilon,
                   partial);
  }
  static constexpr X on_tape(const X& x, ops::LayerNormResult<T, Rank, D>&& result, const Parameter<T, 1, D>& weight,
                             const Parameter<T, 1, D>& bias, double epsilon, bool partial) {
    X y(std::move(result.y), x.tape());
    if (!x.tape().recording()) return y;
    weight.used(x.tape(), partial);
    bias.used(x.tape(), partial);
    detail::LayerNormBackward<T, Rank, D> backward{
        weight, bias, x.slot(), x.value(), std::move(result.mean), std::move(result.rstd)};
    if constexpr (Recomputes)
      y.on_backward(detail::RecomputingLayerNorm<T, Rank, D>{std::move(backward), epsilon});
    else
      y.on_backward(std::move(backward));
    return y;
  }
};
/// The sum takes the branch's block if nothing else has it.
template <class T, int Rank, Device D, bool Recomputes = false>
struct LayerNormOfSum {
  using DeviceType = D;
  using X = TapedTensor<T, Rank, D>;
  using Norm = LayerNorm<T, Rank, D, Recomputes>;
  static constexpr SumAndNorm<X> run(const X& x, X branch, const Parameter<T, 1, D>& weight,
                                     const Parameter<T, 1, D>& bias, double epsilon, bool partial) {
    if (x.shape() != branch.shape() || x.tape().context().probe) {  // one is repeated, or each is to be seen by itself
      X sum = Sum<T, Rank, Rank, D>::run(x, branch, 1), norm = Norm::run(sum, weight, bias, epsilon, partial);
      return {std::move(sum), std::move(norm)};
    }
    const Slot slot = branch.slot();
    auto result = ops::add_layer_norm(x.value(), std::move(branch).take_value(), weight.value(), bias.value(), epsilon);
    X sum = sum_on_tape(std::move(result.sum), x.tape(), x.slot(), slot);
    X norm = Norm::on_tape(sum, std::move(result.norm), weight, bias, epsilon, partial);
    return {std::move(sum), std::move(norm)};
  }
};
}  // namespace operations

#define DSPP_LAYER_NORM_OPERATIONS(TEMPLATE, T)                        \
  TEMPLATE struct CompiledOperation<operations::LayerNorm<T, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::LayerNorm<T, 3, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::LayerNormOfSum<T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_LAYER_NORM_OPERATIONS)

/// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, mean and variance over the last dimension.
///
///   x [..., n]   gamma [n]   beta [n]   y [..., n]
///
/// Placement   features whole; any other state is kept. Beside a Shard (the sequence under SequenceParallel) gamma
///             and beta enter as Replicate, and their gradients are summed over Tp before the step.
/// Memory      keeps x, and a mean and an rstd (1 / standard deviation) per row; the result: see SelectiveRecompute
/// Source      Ba et al. 2016, arXiv:1607.06450
template <class P>
struct LayerNorm : Layer<P> {
  ParameterOf<P, 1> weight, bias;
  double epsilon;

  constexpr explicit LayerNorm(Size width, double epsilon_ = 1e-5)
      : weight("LayerNorm weight", dspp::shape(width), Initial::ones()),
        bias("LayerNorm bias", dspp::shape(width), Initial::zeros()),
        epsilon(epsilon_) {
    weight.decays = bias.decays = false;
    require(epsilon >= 0,
            "dspp: LayerNorm needs an epsilon of at least 0, but got less, or NaN. Leave it out for 1e-5.");
  }

  constexpr void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
  constexpr void describe(auto&& f) const { f("epsilon", epsilon); }

  template <Tracked X>
  constexpr X operator()(const X& x) const {
    check_value_of<P, X>();
    check_whole_features<state_of<X>, X::rank>();
    check_whole_over_cp<typename X::Placement, -1, X::rank>();
    using Norm = operations::LayerNorm<ElementOf<P>, X::rank, DeviceOf<P>, P::recomputes_norms>;
    if constexpr (is_value_of<P, X>)
      return X(perform<Norm>(x, weight, bias, epsilon, is_partial_beside<X>), x);
    else
      return x;
  }

  /// {x + branch, the norm of it}, with the bits of both, in one pass: `auto [y, z] = norm2.of_sum(x, attention(...))`.
  ///
  /// Placement   as + and the norm
  /// Memory      keeps the sum, and a mean and an rstd per row; the sum lies where a moved branch did
  template <Tracked X, Tracked Branch>
  constexpr auto of_sum(const X& x, Branch branch) const {
    using OfSum = operations::LayerNormOfSum<typename X::Element, X::rank, typename X::DeviceType, P::recomputes_norms>;
    return detail::sum_and_norm<P, OfSum>(*this, x, std::move(branch), weight, bias);
  }
};

}  // namespace dspp
