// SPDX-License-Identifier: Apache-2.0
/// The counts of targets that weigh micro-batches against each other, in a device's memory: the host does not wait for
/// them.
#pragma once

#include <dspp/base/list.hpp>
#include <dspp/ops/cpu/counted_targets.hpp>
#include <dspp/ops/cross_entropy.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::ops {

/// The TargetCounts of a micro-batch of `all` targets and that mean loss. `counted`: what the loss counts; unset: all.
template <class C, class D>
constexpr Tensor<double, 1, D> count_targets(double all, const Scalar<double, D>& counted, const Scalar<C, D>& loss) {
  auto counts = Tensor<double, 1, D>::uninitialized(shape(TargetCounts::count), loss.memory(), Category::activations,
                                                    "counted targets");
  const double* const number = detail::data_or_null(counted);
  launch<kernels::CountTargets<C>, D>(loss.memory(), all, number, number, static_cast<const C*>(loss.data()),
                                      counts.data());
  return counts;
}

/// The same for targets of these weights, which are 0 or more. Each of the counts in `reported` has to be the sum of
/// the weights of targets that are not ignored.
///
/// Cost     reads targets and weights once
/// Throws   Error(usage), now or when the host next synchronizes, for other counts
template <class C, class D>
constexpr Tensor<double, 1, D> count_weighted_targets(const Tensor<std::int32_t, 1, D>& targets,
                                                      const Tensor<float, 1, D>& weights,
                                                      const List<Scalar<double, D>>& reported,
                                                      const Scalar<C, D>& loss) {
  detail::require_length(weights[0], targets[0], "count_weighted_targets", "weights");
  auto& memory = loss.memory();
  auto counts =
      Tensor<double, 1, D>::uninitialized(shape(TargetCounts::count), memory, Category::activations, "counted targets");
  launch<kernels::SumTargetWeights, D>(memory, targets.count(), static_cast<const std::int32_t*>(targets.data()),
                                       static_cast<const float*>(weights.data()), counts.data());
  const double* const sum = counts.data_from(TargetCounts::counted);
  for (const auto& number : reported)
    launch<kernels::RequireSumOfWeights, D>(memory, static_cast<const double*>(number.data()), sum);
  launch<kernels::CountTargets<C>, D>(memory, static_cast<double>(targets[0]), sum,
                                      static_cast<const double*>(counts.data_from(TargetCounts::nonzero)),
                                      static_cast<const C*>(loss.data()), counts.data());
  return counts;
}

/// Throws   Error(usage), now or when the host next synchronizes, unless all counts are equal
template <class D>
constexpr void require_same_counts(const List<Scalar<double, D>>& counts) {
  for (std::size_t i = 1; i < counts.size(); ++i)
    launch<kernels::RequireSameCounts, D>(counts[0].memory(), static_cast<const double*>(counts[0].data()),
                                          static_cast<const double*>(counts[i].data()));
}

/// A number in the device's memory as a double.
template <class C, class D>
constexpr Scalar<double, D> widen(const Scalar<C, D>& value) {
  auto number = Scalar<double, D>::uninitialized(shape(), value.memory(), Category::activations, "report");
  launch<kernels::Widen<C>, D>(value.memory(), static_cast<const C*>(value.data()), number.data());
  return number;
}

}  // namespace dspp::ops
