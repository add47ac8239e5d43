// SPDX-License-Identifier: Apache-2.0
/// The counted targets of one step, which make its loss the mean over the global batch.
#pragma once

#include <string>
#include <string_view>

#include <dspp/autograd/context.hpp>
#include <dspp/base/error.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/ops/counted_targets.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// The mean of what forwards reported under a name: see report() in autograd/report.hpp.
struct Metric {
  const char* name = "";
  double value = 0;
};

/// A mean over one rank's samples and the sum of its weights: all_reduce_mean gives that of all ranks.
struct MeanLoss {
  double mean = 0;
  double counted = 0;  ///< sum of the weights of the targets that are not ignored; without weights, their number
  List<Metric> metrics{};
};

/// The value of that name.
///
/// Throws   Error(usage) if none has it
double value_of(const List<Metric>& metrics, std::string_view name);

namespace detail {
/// The targets of a batch, counted or not: of tokens, those given; of another batch the `most` that a term of the loss
/// had, or its samples, of which the `cp` ranks of Cp have the same.
template <class B>
constexpr double targets_of(const B& batch, [[maybe_unused]] double most, [[maybe_unused]] int cp) {
  if constexpr (is_token_batch<B>)
    return static_cast<double>(batch.targets.count());
  else
    return most > 0 ? most : static_cast<double>(rows_of(batch)) / cp;
}
}  // namespace detail

/// The TargetCounts of a micro-batch with that mean loss, from what the terms of the loss reported; else 1 a target, or
/// 1 a sample of a batch of another type than Batch, as in a mean_over_samples.
///
/// Throws   Error(usage), now or when the host next synchronizes, if terms report different counts, or if weights are
///          not all 0 or more; now, if a term did not apply the batch's weights
template <class C, Device D, class B>
constexpr Tensor<double, 1, D> counts_of(const CountedTargets<D>& reported, const B& batch, const Scalar<C, D>& loss,
                                         int cp) {
  const auto& counts = reported.of_terms;
  if constexpr (detail::is_token_batch<B>) {
    if (batch.target_weights) {
      const Shape<1> flat = shape(batch.targets.count());
      const auto weights = batch.target_weights.reshape(flat);
      ops::detail::require_weights(weights, "Engine");
      if (counts.empty() || (reported.unweighted && !reported.all_count)) detail::WrongCounts::without_weights();
      if (!reported.all_count) return ops::count_weighted_targets(batch.targets.reshape(flat), weights, counts, loss);
    }
  }
  const double all = detail::targets_of(batch, reported.all_count ? 0 : reported.most, cp);
  // Not a conditional expression: in a constant one g++ 12 releases its temporary twice.
  if (counts.empty() || reported.all_count) return ops::count_targets(all, Scalar<double, D>(), loss);
  ops::require_same_counts(counts);
  return ops::count_targets(all, counts[0], loss);
}

namespace detail {
[[noreturn]] void refuse_reports(const char* name);
[[noreturn]] void refuse_other_mean();
[[noreturn]] void refuse_lone_mean();

/// Throws   Error(usage) after a backward if cross-entropies alone counted the targets, and none is part of the loss
template <Device D>
constexpr void require_means_of_loss(const CountedTargets<D>& reported) {
  if (reported.means > 0 && reported.means == reported.terms && reported.means_of_loss == 0 && !reported.all_count)
    refuse_lone_mean();
}
}  // namespace detail

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
/// The losses are summed in the same all-reduces. All numbers stay in the device's memory.
///
/// Cost     over several replicas, an all-reduce of 32 bytes before the first backward of a step, and one of 16 bytes
///          at the step if it has several micro-steps
template <Device D>
class StepTargets {
 public:
  [[gnu::noinline]] constexpr StepTargets(Memory<D>& memory, CommunicatorOf<D>& replicas)
      : memory_(&memory),
        replicas_(&replicas),
        sums_(Tensor<double, 1, D>::zeros(shape(StepSums::count), memory, Category::communication, "counted targets")) {
  }

  /// Begins a step with the TargetCounts of this rank's first micro-batch.
  [[gnu::noinline]] constexpr void begin(const Tensor<double, 1, D>& counts) {
    micro_steps_ = 0;
    zero_bytes<D>(sums_.storage(), 0, StepSums::count * width);
    copy_bytes<D>(sums_.storage(), StepSums::first_micro_batches * width, counts.storage(), 0,
                  TargetCounts::count * width);
    if (replicas_->size() > 1)
      all_reduce(*replicas_, buffer(sums_.data_from(StepSums::first_micro_batches), TargetCounts::count),
                 Purpose::scalar);
  }

  /// Adds a micro-batch of this rank; returns the seed of its backward, scale c / n, or NaN for a loss that is not
  /// finite, which makes every gradient NaN on all ranks, even one that would be finite. `numbers`: what has the scale
  /// in its place; null: nothing.
  ///
  /// Throws   Error(usage), now or when the host next synchronizes, for a loss with a mean over elements if c / p
  ///          differs between micro-batches; now, for a mean_over_samples in some micro-steps only
  template <class C>
  constexpr Scalar<C, D> add(const Tensor<double, 1, D>& counts, const Scalar<C, D>& loss, double scale,
                             const CountedTargets<D>& reported, const StepNumbers* numbers = nullptr) {
    if (micro_steps_ > 0 && reported.all_count != all_count_) detail::refuse_other_mean();
    all_count_ = reported.all_count;
    ++micro_steps_;
    auto seed = Scalar<C, D>::uninitialized({}, *memory_, Category::activations, "loss seed");
    kernels::SeedArguments arguments{replicas_->size(), micro_steps_, scale, reported.plain_mean, numbers};
    if (numbers != nullptr) arguments.micro_step = 0, arguments.scale = 0;  // they have these
    launch<kernels::SeedLoss<C>, D>(*memory_, arguments, static_cast<const double*>(counts.data()),
                                    static_cast<const C*>(loss.data()), sums_.data(), seed.data());
    return seed;
  }

  /// Adds what the forward of that micro-batch reported.
  ///
  /// Throws   Error(usage) for other names than in the first micro-step: their sums would lack some of its targets
  constexpr void add_reports(const List<Reported<D>>& reports, const Tensor<double, 1, D>& counts) {
    const bool first = micro_steps_ == 1;
    if (first) reported_.free();
    if (!reports.empty() && !sums_of_reports_)
      sums_of_reports_ = Tensor<double, 1, D>::uninitialized(shape(static_cast<Size>(max_reports)), *memory_,
                                                             Category::communication, "reports");
    for (const Reported<D>& report : reports) {
      std::size_t i = 0;
      while (i < reported_.size() && std::string_view(reported_[i].name) != report.name) ++i;
      if (!first && i == reported_.size()) detail::refuse_reports(report.name);
      const Size at = static_cast<Size>(i);
      if (i == reported_.size()) {
        reported_.push_back(Metric{report.name, 0});
        zero_bytes<D>(sums_of_reports_.storage(), at * width, width);
      }
      launch<kernels::AddCounted, D>(*memory_, static_cast<const double*>(counts.data()),
                                     static_cast<const double*>(report.value.data()), sums_of_reports_.data_from(at));
    }
    for (const Metric& other : reported_) {
      bool found = false;
      for (const Reported<D>& report : reports) found |= std::string_view(report.name) == other.name;
      if (!found) detail::refuse_reports(other.name);
    }
  }
  /// Sums up what was reported in a step over the replicas.
  ///
  /// Cost     if anything was, an all-reduce of 8 bytes a name
  constexpr void sum_up_reports() {
    if (!reported_.empty() && replicas_->size() > 1)
      all_reduce(*replicas_, buffer(sums_of_reports_.data(), static_cast<Size>(reported_.size())), Purpose::scalar);
  }
  /// The means, on the host, of a step of so many targets. Frees their sums: every step has the memory of the first.
  constexpr List<Metric> metrics(double targets) {
    List<Metric> means = reported_;
    if (!means.empty())
      sums_of_reports_.read([&](const double* sums) {
        for (std::size_t i = 0; i < means.size(); ++i) means[i].value = targets > 0 ? sums[i] / targets : 0;
      });
    sums_of_reports_.release();
    return means;
  }

  /// What was reported in a step, to be that of another which a device repeats.
  constexpr const List<Metric>& reported() const { return reported_; }
  constexpr const Storage<Memory<D>>& sums_of_reports() const { return sums_of_reports_.storage(); }
  constexpr void set_reported(const List<Metric>& reported, Storage<Memory<D>> sums) {
    reported_ = reported;
    sums_of_reports_ = Tensor<double, 1, D>::view(std::move(sums), 0, shape(static_cast<Size>(max_reports)));
  }

  /// The StepScalars of all replicas' targets so far, the same on every replica: among them the mean loss, and the
  /// correction R A n / sum of c with the micro-steps so far as A, or 1 if nothing is counted.
  constexpr Tensor<double, 1, D> sum_up() const {
    auto scalars = Tensor<double, 1, D>::uninitialized(shape(StepScalars::count), *memory_, Category::communication,
                                                       "step scalars");
    const Size first_loss = StepSums::first_micro_batches + TargetCounts::loss;
    const bool one = micro_steps_ <= 1;
    auto totals = Tensor<double, 1, D>::view(sums_.storage(), one ? first_loss : StepSums::own_loss, shape(2));
    if (!one && replicas_->size() > 1) {
      totals = Tensor<double, 1, D>::uninitialized(shape(2), *memory_, Category::communication, "counted targets");
      copy_bytes<D>(totals.storage(), 0, sums_.storage(), StepSums::own_loss * width, 2 * width);
      all_reduce(*replicas_, buffer(totals.data(), 2), Purpose::scalar);
    }
    launch<kernels::SumUpTargets, D>(*memory_, replicas_->size(), micro_steps_,
                                     static_cast<const double*>(sums_.data()),
                                     static_cast<const double*>(totals.data()), scalars.data());
    return scalars;
  }
  /// The correction, on the host.
  double correction() const {
    double correction = 1;
    sum_up().read([&](const auto* host) { correction = host[StepScalars::correction]; });
    return correction;
  }

 private:
  static constexpr Size width = sizeof(double);

  Memory<D>* memory_;
  CommunicatorOf<D>* replicas_;
  Tensor<double, 1, D> sums_;  ///< StepSums
  Tensor<double, 1, D> sums_of_reports_;
  List<Metric> reported_;  ///< the names of this step, in the order of the sums
  Size micro_steps_ = 0;
  bool all_count_ = false;  ///< of the micro-steps so far
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_reports(const char* name) {
  fail(ErrorCode::usage, std::string("dspp: the micro-steps of a step need the same reports, but '") + name +
                             "' is not in all of them. Report a number in every forward, or in none of a step.");
}
DSPP_INLINE void detail::refuse_other_mean() {
  fail(ErrorCode::usage,
       "dspp: the micro-steps of a step need one kind of mean, but only some of them return mean_over_samples(loss). "
       "Return it in every forward, or in none.");
}
DSPP_INLINE void detail::refuse_lone_mean() {
  fail(ErrorCode::usage,
       "dspp: Engine needs a cross_entropy in the loss whose mean is over the targets that it counts, but this loss "
       "has none, beside one that has no part in it. Leave that out, or return mean_over_samples(loss).");
}

DSPP_INLINE double value_of(const List<Metric>& metrics, std::string_view name) {
  for (const Metric& metric : metrics)
    if (metric.name == name) return metric.value;
  fail(ErrorCode::usage, "dspp: a report needs a name that the model's forward reported, but none was called '" +
                             std::string(name) + "'. Call report(name, value) in loss().");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
