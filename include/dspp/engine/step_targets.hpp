// SPDX-License-Identifier: Apache-2.0
/// The counted targets of one step, which make its loss the mean over the global batch.
#pragma once

#include <string>

#include <dspp/autograd/context.hpp>
#include <dspp/base/error.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/ops/cross_entropy.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// A mean and the sum of its weights. Converts to the mean.
struct MeanLoss {
  double mean = 0;
  double counted = 0;  ///< sum of the weights of the targets that are not ignored; without weights, their number
  constexpr operator double() const { return mean; }
};

/// The counts of a batch's targets.
struct TargetCounts {
  double all = 0;      ///< targets, including ignored ones
  double counted = 0;  ///< sum of the weights of those that are not ignored
  double nonzero = 0;  ///< targets that are not ignored and have a weight above 0; without weights, `counted`
};

/// Throws   Error(usage) unless all weights are 0 or more, and every term of the loss applied them, that is, reported
///          their sum up to float rounding
template <Device D>
constexpr TargetCounts weighted_counts(const CountedTargets& reported, const Batch<D>& batch) {
  const Shape<1> flat = shape(batch.targets.count());
  const auto targets = batch.targets.reshape(flat);
  const auto weights = batch.target_weights.reshape(flat);
  ops::detail::require_weights(weights, "Engine");
  const TargetWeights own = ops::sum_target_weights(targets, weights);
  const TargetCounts counts{static_cast<double>(flat[0]), own.sum, own.positive};
  const bool is_sum = counts.counted - reported.least <= 1e-4 * counts.counted &&
                      reported.most - counts.counted <= 1e-4 * counts.counted;
  // clang-format off
  require(is_sum && reported.terms > 0 && !reported.unweighted, "dspp: Engine needs a loss that applies the batch's target_weights, but this model's does not. Use cross_entropy with the targets passed to loss(tokens, targets), call loss_counts(sum of the weights) in a loss of your own, or leave target_weights out.");
  // clang-format on
  return counts;
}

/// The counts that the terms of a loss reported, or 1 for each target.
///
/// Throws   Error(usage) if terms report different or invalid counts, or if a term did not apply the batch's weights
template <Device D>
constexpr TargetCounts counts_of(const CountedTargets& reported, const Batch<D>& batch) {
  require(reported.valid,
          "dspp: Engine needs a loss that counts 0 targets or more, but got another number. Change loss_counts().");
  if (batch.target_weights) return weighted_counts(reported, batch);
  if (reported.least != reported.most)
    fail(ErrorCode::usage, "dspp: Engine needs terms of a loss that count the same number of targets, but one counts " +
                               std::to_string(reported.most) + " and another " + std::to_string(reported.least) +
                               ". Ignore the same targets in each.");
  const auto all = static_cast<double>(batch.targets.count());
  const double counted = reported.terms > 0 ? reported.most : all;
  return {all, counted, counted};
}

/// Weights micro-steps against each other. With c of the p targets of a micro-batch counted, over A micro-steps on R
/// replicas, the gradient of the mean over the global batch is
///
///   sum of c gradient(local mean) / sum of c   =   (sum of c / n gradient(local mean) / (R A))   R A n / sum of c
///
/// Backward seeds with c / n, where n is the mean p of the replicas' first micro-batches times the mean nonzero weight
/// there: gradients stay as large as without weights, which f16 needs, unless the mean weight of later micro-batches
/// differs by a factor of thousands. The last factor is applied at the step. Both factors are exactly 1 if every
/// micro-batch has the same number of targets and all weights are 1.
///
/// The losses are summed in the same all-reduces.
///
/// Cost     over several replicas, an all-reduce of 32 bytes before the first backward of a step, and one of 16 bytes
///          at the step if it has several micro-steps
template <Device D>
class StepTargets {
 public:
  constexpr StepTargets(Memory<D>& memory, CommunicatorOf<D>& replicas) : memory_(&memory), replicas_(&replicas) {}

  /// Begins a step with this rank's first micro-batch and its mean loss.
  constexpr void begin(const TargetCounts& own, double loss) {
    double sums[4] = {own.all, own.counted, own.nonzero, sum_of(own, loss)};
    sum_over_replicas(sums, 4);
    first_targets_ = sums[0] > 0 ? sums[0] : static_cast<double>(replicas_->size());
    first_counted_ = sums[1];
    first_loss_ = sums[3];
    nominal_ = first_targets_ * (sums[1] > 0 ? sums[1] / sums[2] : 1);
    own_ = own_loss_ = 0, micro_steps_ = 0;
  }

  /// Adds a micro-batch of this rank and its mean loss; returns c / n.
  ///
  /// Throws   Error(usage) for a loss with a mean over elements if c / p differs between micro-batches
  constexpr double add(const TargetCounts& own, double loss, bool plain_mean) {
    const bool all_count_1 = own.counted == own.nonzero && nominal_ == first_targets_;  // else sums of floats
    // clang-format off
    require(!plain_mean || is_near(own.counted * first_targets_, first_counted_ * own.all, all_count_1 ? 1e-12 : 1e-6), "dspp: Engine needs the same mean target weight (0 for ignored ones) on every rank and in every micro-step if a loss takes mean(x), but these differ. Take sum(x) / (the sum of the batch's target weights), or neither ignore nor weight targets.", ErrorCode::usage);
    // clang-format on
    own_ += own.counted, own_loss_ += sum_of(own, loss);
    ++micro_steps_;
    return own.counted / (nominal_ / static_cast<double>(replicas_->size()));
  }

  /// The mean loss over all replicas' counted targets so far, the same on every replica.
  constexpr MeanLoss mean() const {
    double sums[2] = {first_loss_, first_counted_};
    if (micro_steps_ > 1) {
      sums[0] = own_loss_, sums[1] = own_;
      sum_over_replicas(sums, 2);
    }
    return {sums[1] > 0 ? sums[0] / sums[1] : 0, sums[1]};
  }

  /// R A n / sum of c, with the micro-steps so far as A; 1 if nothing is counted.
  constexpr double correction(double counted) const {
    return counted > 0 ? static_cast<double>(micro_steps_) * nominal_ / counted : 1;
  }

 private:
  static constexpr double sum_of(const TargetCounts& own, double mean) {
    return own.counted > 0 ? mean * own.counted : 0;
  }
  static constexpr bool is_near(double a, double b, double share) { return a - b <= share * b && b - a <= share * b; }
  constexpr void sum_over_replicas(double* sums, Size count) const {
    if (replicas_->size() == 1) return;
    auto buffer_of_sums =
        Tensor<double, 1, D>::uninitialized(shape(count), *memory_, Category::communication, "counted targets");
    D::from_host(*memory_, buffer_of_sums.data(), sums, count);
    all_reduce(*replicas_, buffer(buffer_of_sums.data(), count), Purpose::scalar);
    D::to_host(*memory_, sums, buffer_of_sums.data(), count);
  }

  Memory<D>* memory_;
  CommunicatorOf<D>* replicas_;
  double first_targets_ = 1, first_counted_ = 0, first_loss_ = 0;  ///< sums over all replicas' first micro-batches
  double nominal_ = 1;                                             ///< R n
  double own_ = 0, own_loss_ = 0;                                  ///< this rank's count, and the sum of its losses
  Size micro_steps_ = 0;
};

}  // namespace dspp
