// SPDX-License-Identifier: Apache-2.0
/// The targets that count in one step: what makes its loss the mean over those of the global batch.
#pragma once

#include <string>

#include <dspp/autograd/context.hpp>
#include <dspp/base/error.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/ops/cross_entropy.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// A mean, and the sum of the weights of what it is the mean of. Reads as the mean.
struct MeanLoss {
  double mean = 0;
  double counted = 0;  ///< the sum of the weights of the targets that are not ignored: their number, without weights
  constexpr operator double() const { return mean; }
};

/// How much the targets of a batch count.
struct TargetCounts {
  double all = 0;      ///< targets, ignored ones too
  double counted = 0;  ///< the sum of the weights of those that are not ignored
  double weighty = 0;  ///< those that are not ignored and do not weigh 0; without weights, `counted`
};

/// Throws   Error(usage) unless all weights are 0 or more, and every term of the loss has them: says their sum over
///          targets that are not ignored, up to what a sum of floats loses
template <Device D>
constexpr TargetCounts weighed_counts(const CountedTargets& said, const Batch<D>& batch) {
  const Shape<1> flat = shape(batch.targets.count());
  const auto targets = batch.targets.reshape(flat);
  const auto weights = batch.target_weights.reshape(flat);
  ops::detail::require_weights(weights, "Engine");
  const TargetWeights own = ops::weigh_targets(targets, weights);
  const TargetCounts counts{static_cast<double>(flat[0]), own.sum, own.positive};
  const bool is_sum =
      counts.counted - said.least <= 1e-4 * counts.counted && said.most - counts.counted <= 1e-4 * counts.counted;
  // clang-format off
  require(is_sum && said.terms > 0 && !said.unweighed, "dspp: Engine needs a loss that weighs targets as the batch's target_weights say, but this model's does not. Use cross_entropy with the targets that loss(tokens, targets) is given, say in a loss of your own that it counts the sum of the weights (loss_counts), or leave target_weights out.");
  // clang-format on
  return counts;
}

/// How much the targets of a batch count: what the terms of its loss said, or 1 each.
///
/// Throws   Error(usage) for terms that say different numbers, or what is no number of targets, or where not every term
///          has the weights of a batch that has them
template <Device D>
constexpr TargetCounts counts_of(const CountedTargets& said, const Batch<D>& batch) {
  require(said.valid,
          "dspp: Engine needs a loss that counts 0 targets or more, but got another number. Change loss_counts().");
  if (batch.target_weights) return weighed_counts(said, batch);
  if (said.least != said.most)
    fail(ErrorCode::usage,
         "dspp: Engine needs terms of a loss that count as many targets, since one weight is for all, but one counts " +
             std::to_string(said.most) + " and another " + std::to_string(said.least) +
             ". Ignore the same targets in each.");
  const auto all = static_cast<double>(batch.targets.count());
  const double counted = said.terms > 0 ? said.most : all;
  return {all, counted, counted};
}

/// Weighs micro-steps against each other. With c of the p targets of a micro-batch counted, over A micro-steps on R
/// replicas, the gradient of the mean over the global batch is
///
///   sum of c gradient(local mean) / sum of c   =   (sum of c / n gradient(local mean) / (R A))   R A n / sum of c
///
/// Backward seeds with c / n, where n is the mean p of the replicas' first micro-batches times the mean weight there of
/// what has a weight: gradients are as large as without weights, which f16 needs, unless later micro-batches weigh
/// thousands of times more or less a target than the first. The last factor is known at the step.
/// Both are exactly 1 where every micro-batch has as many targets and all of them count 1.
///
/// The losses travel with the counts.
///
/// Cost     over several replicas, an all-reduce of 32 bytes before the first backward of a step, and one of 16 bytes
///          at the step if it has several micro-steps
template <Device D>
class StepTargets {
 public:
  constexpr StepTargets(Memory<D>& memory, CommunicatorOf<D>& replicas) : memory_(&memory), replicas_(&replicas) {}

  /// Begins a step with the first micro-batch of this rank, and its mean loss.
  constexpr void begin(const TargetCounts& own, double loss) {
    double sums[4] = {own.all, own.counted, own.weighty, sum_of(own, loss)};
    sum_over_replicas(sums, 4);
    first_targets_ = sums[0] > 0 ? sums[0] : static_cast<double>(replicas_->size());
    first_counted_ = sums[1];
    first_loss_ = sums[3];
    nominal_ = first_targets_ * (sums[1] > 0 ? sums[1] / sums[2] : 1);
    own_ = own_loss_ = 0, micro_steps_ = 0;
  }

  /// Adds a micro-batch of this rank, and its mean loss: c / n.
  ///
  /// Throws   Error(usage) for a loss with a mean over elements, which p weighs, where c / p is not that of the others
  constexpr double add(const TargetCounts& own, double loss, bool plain_mean) {
    const bool all_count_1 = own.counted == own.weighty && nominal_ == first_targets_;  // else these are sums of floats
    // clang-format off
    require(!plain_mean || is_near(own.counted * first_targets_, first_counted_ * own.all, all_count_1 ? 1e-12 : 1e-6), "dspp: Engine needs targets of the same mean weight, ignored ones weighing 0, on every rank and in every micro-step where a loss takes mean(x), since one weight is for all its terms, but these differ. Take sum(x) / (the sum of the weights of the batch's targets), or ignore and weigh none.", ErrorCode::usage);
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

  /// R A n / sum of c, with the micro-steps so far for A; 1 if nothing is counted.
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
  double own_ = 0, own_loss_ = 0;  ///< counted on this rank, and the sum of their losses
  Size micro_steps_ = 0;
};

}  // namespace dspp
