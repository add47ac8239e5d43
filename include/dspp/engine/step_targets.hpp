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
  double counted = 0;  ///< targets that count
  constexpr operator double() const { return mean; }
};

/// Throws   Error(usage) unless all weights are 0 or more, and `counted` their sum over targets that are not ignored
template <Device D>
constexpr void require_weighed(double counted, const Batch<D>& batch) {
  ops::detail::require_weights(batch.target_weights.reshape(shape(batch.targets.count())), "Engine");
  double sum = 0;
  for (Size i = 0; i < batch.targets.count(); ++i)
    if (batch.targets.data()[i] != ignored_target) sum += static_cast<double>(batch.target_weights.data()[i]);
  // clang-format off
  require(sum - counted <= 1e-9 * sum && counted - sum <= 1e-9 * sum, "dspp: Engine needs a loss that weighs targets as the batch's target_weights say, but this model's counts another sum of them. Use cross_entropy with the targets that loss(tokens, targets) is given, or leave target_weights out.");
  // clang-format on
}

/// How much the targets of a batch count: what the terms of its loss said, or 1 each.
///
/// Throws   Error(usage) for terms that say different numbers, or what is no number of targets, or anything but the sum
///          of the weights of a batch that has them
template <Device D>
constexpr double counted_of(const CountedTargets& said, const Batch<D>& batch) {
  if (said.unequal)
    fail(ErrorCode::usage,
         "dspp: Engine needs terms of a loss that count as many targets, since one weight is for all, but one counts " +
             std::to_string(said.count) + " and another a different number. Ignore the same targets in each.");
  const double counted = said.terms > 0 ? said.count : static_cast<double>(batch.targets.count());
  require(counted >= 0 && counted - counted == 0,
          "dspp: Engine needs a loss that counts 0 targets or more, but got another number. Change loss_counts().");
  if constexpr (D::real)
    if (batch.target_weights) require_weighed(counted, batch);
  return counted;
}

/// Weighs micro-steps against each other. With c of the p targets of a micro-batch counted, over A micro-steps on R
/// replicas, the gradient of the mean over the global batch is
///
///   sum of c gradient(local mean) / sum of c   =   (sum of c / n gradient(local mean) / (R A))   R A n / sum of c
///
/// Backward seeds with c / n, where n is the mean p of the replicas' first micro-batches; the last factor is known at
/// the step. Both are exactly 1 where every micro-batch has as many targets and all of them count.
///
/// Cost     over several replicas, an all-reduce of 16 bytes before the first backward of a step, and one of 8 bytes at
///          the step if it has several micro-steps
template <Device D>
class StepTargets {
 public:
  constexpr StepTargets(Memory<D>& memory, CommunicatorOf<D>& replicas) : memory_(&memory), replicas_(&replicas) {}

  /// Begins a step with the first micro-batch of this rank.
  constexpr void begin(double targets, double counted) {
    double sums[2] = {targets, counted};
    sum_over_replicas(sums, 2);
    first_targets_ = sums[0] > 0 ? sums[0] : static_cast<double>(replicas_->size());
    first_counted_ = sums[1];
    own_ = 0, micro_steps_ = 0;
  }

  /// Adds a micro-batch of this rank: c / n.
  ///
  /// Throws   Error(usage) for a loss with a mean over elements, which p weighs, where c / p is not that of the others
  constexpr double add(double targets, double counted, bool plain_mean) {
    // clang-format off
    require(!plain_mean || is_near(counted * first_targets_, first_counted_ * targets), "dspp: Engine needs the same share of ignored targets on every rank and in every micro-step where a loss takes mean(x), since one weight is for all its terms, but these differ. Take sum(x) / (the batch's targets that count), or ignore none.", ErrorCode::usage);
    // clang-format on
    own_ += counted;
    ++micro_steps_;
    return counted / (first_targets_ / static_cast<double>(replicas_->size()));
  }

  /// The counted targets of all replicas so far.
  constexpr double counted() const {
    if (micro_steps_ == 1) return first_counted_;
    double sum = own_;
    sum_over_replicas(&sum, 1);
    return sum;
  }

  /// R A n / sum of c, with the micro-steps so far for A; 1 if nothing is counted.
  constexpr double correction(double counted) const {
    return counted > 0 ? static_cast<double>(micro_steps_) * first_targets_ / counted : 1;
  }

 private:
  /// Counts may be sums of weights, which round.
  static constexpr bool is_near(double a, double b) { return a - b <= 1e-12 * b && b - a <= 1e-12 * b; }
  constexpr void sum_over_replicas(double* sums, Size count) const {
    if (replicas_->size() == 1) return;
    auto buffer_of_sums =
        Tensor<double, 1, D>::uninitialized(shape(count), *memory_, Category::communication, "counted targets");
    if constexpr (D::real)
      for (Size i = 0; i < count; ++i) buffer_of_sums.data()[i] = sums[i];
    all_reduce(*replicas_, buffer(buffer_of_sums.data(), count), Purpose::scalar);
    if constexpr (D::real)
      for (Size i = 0; i < count; ++i) sums[i] = buffer_of_sums.data()[i];
  }

  Memory<D>* memory_;
  CommunicatorOf<D>* replicas_;
  double first_targets_ = 1, first_counted_ = 0;  ///< of all replicas' first micro-batches
  double own_ = 0;                                ///< counted on this rank
  Size micro_steps_ = 0;
};

}  // namespace dspp
