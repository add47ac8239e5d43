// SPDX-License-Identifier: Apache-2.0
/// Counts of targets, and the seeds of backward that they give.
#pragma once

#include <string>

#include <dspp/base/error.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

namespace detail {
/// The errors of counts that cannot be weights.
struct WrongCounts {
  [[noreturn]] static void no_number();
  [[noreturn]] static void differ(double a, double b);
  [[noreturn]] static void without_weights();
  [[noreturn]] static void beside_mean();
};
}  // namespace detail

template <>
struct Kernel<kernels::SumTargetWeights, Cpu> {
  static void run(Size count, const std::int32_t* targets, const float* weights, double* counts) {
    double sum = 0;
    Size nonzero = 0;
    for (Size i = 0; i < count; ++i) {
      if (targets[i] == ignored_target || weights[i] == 0) continue;
      sum += static_cast<double>(weights[i]);
      ++nonzero;
    }
    counts[TargetCounts::counted] = sum;
    counts[TargetCounts::nonzero] = static_cast<double>(nonzero);
  }
};

template <>
struct Kernel<kernels::RequireSameCounts, Cpu> {
  DSPP_HOST_DEVICE static bool holds(double reported, double other) { return reported == other; }
  static void run(const double* reported, const double* other) {
    if (!holds(*reported, *other)) detail::WrongCounts::differ(*reported, *other);
  }
};

template <>
struct Kernel<kernels::RequireSumOfWeights, Cpu> {
  DSPP_HOST_DEVICE static bool holds(double reported, double sum) {
    const double rounding = 1e-4 * sum;
    return sum - reported <= rounding && reported - sum <= rounding;
  }
  static void run(const double* reported, const double* sum) {
    if (!holds(*reported, *sum)) detail::WrongCounts::without_weights();
  }
};

template <class C>
struct Kernel<kernels::CountTargets<C>, Cpu> {
  static void run(double all, const double* counted, const double* nonzero, const C* loss, double* counts) {
    if (!count(all, counted, nonzero, loss, counts)) detail::WrongCounts::no_number();
  }
  /// False if `counted` cannot be a number of targets.
  DSPP_HOST_DEVICE static bool count(double all, const double* counted, const double* nonzero, const C* loss,
                                     double* counts) {
    const double number = counted != nullptr ? *counted : all;
    if (!(number >= 0 && number - number == 0)) return false;
    counts[TargetCounts::nonzero] = nonzero != nullptr ? *nonzero : all;
    counts[TargetCounts::all] = all;
    counts[TargetCounts::counted] = number;
    counts[TargetCounts::loss] = number > 0 ? static_cast<double>(*loss) * number : 0;
    return true;
  }
};

template <class C>
struct Kernel<kernels::Widen<C>, Cpu> {
  DSPP_HOST_DEVICE static void run(const C* value, double* number) { *number = static_cast<double>(*value); }
};

template <>
struct Kernel<kernels::AddCounted, Cpu> {
  DSPP_HOST_DEVICE static void run(const double* counts, const double* number, double* sum) {
    if (counts[TargetCounts::counted] > 0) *sum += *number * counts[TargetCounts::counted];
  }
};

namespace cpu {

/// The targets of all replicas' first micro-batches.
DSPP_HOST_DEVICE inline double first_targets(int replicas, const double* sums) {
  const double all = sums[StepSums::first_micro_batches + TargetCounts::all];
  return all > 0 ? all : static_cast<double>(replicas);
}
/// R n of StepTargets: these times their mean weight, ignored and zero ones left out.
DSPP_HOST_DEVICE inline double nominal_count(int replicas, const double* sums) {
  const double* const first = sums + StepSums::first_micro_batches;
  const double counted = first[TargetCounts::counted];
  return first_targets(replicas, sums) * (counted > 0 ? counted / first[TargetCounts::nonzero] : 1);
}

}  // namespace cpu

template <class C>
struct Kernel<kernels::SeedLoss<C>, Cpu> {
  static void run(const kernels::SeedArguments& of, const double* counts, const C* loss, double* sums, C* seed) {
    if (!give(of, counts, loss, sums, seed)) detail::WrongCounts::beside_mean();
  }
  /// False, and nothing is written, if a mean over elements is beside targets of which another share counts.
  DSPP_HOST_DEVICE static bool give(const kernels::SeedArguments& of, const double* counts, const C* loss, double* sums,
                                    C* seed);

 private:
  DSPP_HOST_DEVICE static bool is_near(double a, double b, double share) {
    return a - b <= share * b && b - a <= share * b;
  }
};

template <>
struct Kernel<kernels::SumUpTargets, Cpu> {
  DSPP_HOST_DEVICE static void run(int replicas, Size micro_steps, const double* sums, const double* totals,
                                   double* scalars) {
    const double loss = totals[0], counted = totals[1];
    scalars[StepScalars::loss] = counted > 0 ? loss / counted : 0;
    scalars[StepScalars::targets] = counted;
    scalars[StepScalars::correction] =
        counted > 0 ? static_cast<double>(micro_steps) * cpu::nominal_count(replicas, sums) / counted : 1;
    scalars[StepScalars::bad_loss] = sums[StepSums::bad_loss];
    scalars[StepScalars::bad_micro_step] = sums[StepSums::bad_micro_step];
  }
};

}  // namespace dspp

// ---------------------------------------------------------------------------------------------------------------------

namespace dspp {

template <class C>
DSPP_HOST_DEVICE bool Kernel<kernels::SeedLoss<C>, Cpu>::give(const kernels::SeedArguments& of, const double* counts,
                                                              const C* loss, double* sums, C* seed) {
  const double* const first = sums + StepSums::first_micro_batches;
  const double counted = counts[TargetCounts::counted];
  const double targets = cpu::first_targets(of.replicas, sums), nominal = cpu::nominal_count(of.replicas, sums);
  const bool all_count_1 = counted == counts[TargetCounts::nonzero] && nominal == targets;  // else sums of floats
  if (of.plain_mean &&
      !is_near(counted * targets, first[TargetCounts::counted] * counts[TargetCounts::all], all_count_1 ? 1e-12 : 1e-6))
    return false;
  sums[StepSums::own_loss] += counts[TargetCounts::loss];
  sums[StepSums::own_counted] += counted;
  const double share = counted / (nominal / static_cast<double>(of.replicas));
  const auto mean = static_cast<double>(*loss);
  const double scale = of.numbers != nullptr ? of.numbers->seed : of.scale;
  *seed = static_cast<C>(scale * share);
  if (mean - mean == 0) return true;
  constexpr auto nan = static_cast<C>(__builtin_nan(""));
  *seed = nan;
  if (sums[StepSums::bad_micro_step] > 0) return true;
  const Size micro_step = of.numbers != nullptr ? of.numbers->micro_step : of.micro_step;
  sums[StepSums::bad_loss] = mean, sums[StepSums::bad_micro_step] = static_cast<double>(micro_step);
  return true;
}

}  // namespace dspp

#if DSPP_HAS_DEFINITIONS()

namespace dspp {

DSPP_INLINE void detail::WrongCounts::no_number() {
  fail(ErrorCode::usage,
       "dspp: Engine needs a loss that counts 0 targets or more, but got another number. Change loss_counts().");
}

DSPP_INLINE void detail::WrongCounts::differ(double a, double b) {
  fail(ErrorCode::usage, "dspp: Engine needs terms of a loss that count the same number of targets, but one counts " +
                             std::to_string(a < b ? b : a) + " and another " + std::to_string(a < b ? a : b) +
                             ". Ignore the same targets in each, or return mean_over_samples(loss).");
}

DSPP_INLINE void detail::WrongCounts::without_weights() {
  fail(
      ErrorCode::usage,
      "dspp: Engine needs a loss that applies the batch's target_weights, but this model's does not. Use cross_entropy "
      "with the targets passed to loss(tokens, targets), call loss_counts(sum of the weights) in a loss of your own, "
      "or leave target_weights out.");
}

DSPP_INLINE void detail::WrongCounts::beside_mean() {
  fail(ErrorCode::usage,
       "dspp: Engine needs the same mean target weight (0 for ignored ones) on every rank and in every micro-step if a "
       "loss takes mean(x), but these differ. Take sum(x) / (the sum of the batch's target weights), neither ignore "
       "nor weight targets, or, if it is no report, return mean_over_samples(loss).");
}

}  // namespace dspp

#endif  // DSPP_HAS_DEFINITIONS()
