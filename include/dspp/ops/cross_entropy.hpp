// SPDX-License-Identifier: Apache-2.0
/// Cross-entropy straight from logits whose columns may be split over ranks: parts, their combination, the vjp.
#pragma once

#include <string>

#include <dspp/ops/cpu/cross_entropy.hpp>
#include <dspp/ops/cpu/require.hpp>
#include <dspp/ops/embedding.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_smoothing(double label_smoothing);

/// Throws, with the first wrong one, unless every target is a token of the vocabulary or ignored_target: now, or when
/// the host next synchronizes.
template <class D>
constexpr void require_targets(const Tensor<std::int32_t, 1, D>& targets, Size vocabulary, const char* who) {
  launch<kernels::RequireIds, D>(targets.memory(), targets.count(), static_cast<const std::int32_t*>(targets.data()),
                                 vocabulary, true, who);
}

/// The same unless every weight is finite and at least 0.
template <class D>
constexpr void require_weights(const Tensor<float, 1, D>& weights, const char* who) {
  launch<kernels::RequireWeights, D>(weights.memory(), weights.count(), static_cast<const float*>(weights.data()), who);
}
}  // namespace detail

/// What is wanted of `classes` classes: 1 of the target, or 1 - label_smoothing of it and label_smoothing spread evenly
/// over all of them.
///
/// Throws   Error(usage) for a label_smoothing outside [0, 1]
/// Source   Szegedy et al. 2015, arXiv:1512.00567, section 7
constexpr TargetProbabilities smoothed_targets(double label_smoothing, Size classes) {
  if (!(label_smoothing >= 0 && label_smoothing <= 1)) detail::fail_of_smoothing(label_smoothing);
  return {.target = 1 - label_smoothing,
          .each = label_smoothing > 0 ? label_smoothing / static_cast<double>(classes) : 0};
}

/// The loss, which is the weighted mean over the counted rows, or 0 if there are none, and what the vjp needs.
template <class C, class D>
struct CrossEntropyResult {
  Scalar<C, D> loss;
  Scalar<double, D> counted;    // the sum of the weights of rows whose targets are not ignored
  Tensor<C, 1, D> log_sum_exp;  // [rows]
};

namespace detail {
template <class C, class D>
constexpr CrossEntropyResult<C, D> uninitialized_result(Size rows, Memory<D>& memory) {
  return {Scalar<C, D>::uninitialized(shape(), memory, Category::activations, "cross_entropy"),
          Scalar<double, D>::uninitialized(shape(), memory, Category::activations, "cross_entropy"),
          Tensor<C, 1, D>::uninitialized(shape(rows), memory, Category::activations, "cross_entropy")};
}
}  // namespace detail

/// (max, sum of exp(x - max), sum of x times what is wanted of it) of each row: [rows, 3]. The third is the logit of
/// the target, or 0 if it is on another rank or ignored, unless labels are smoothed.
///
/// logits: this rank's columns [first_column, first_column + valid_columns) of the vocabulary; columns from
/// valid_columns on are padding and ignored. `vocabulary` is that of all ranks, or 0 where it is not known.
///
/// Cost     5 operations an element
/// Memory   3 rows numbers
/// Throws   Error(shape); Error(usage) for a target outside of the vocabulary
template <class T, class D>
constexpr Tensor<Compute<T>, 2, D> cross_entropy_parts(const Tensor<T, 2, D>& logits,
                                                       const Tensor<std::int32_t, 1, D>& targets, Size first_column,
                                                       Size valid_columns, Size vocabulary = 0,
                                                       TargetProbabilities wanted = {}) {
  detail::require_length(targets[0], logits[0], "cross_entropy_parts", "targets");
  detail::require_columns(valid_columns, logits[1], "cross_entropy_parts");
  if (vocabulary > 0) detail::require_targets(targets, vocabulary, "cross_entropy_parts");
  auto parts = Tensor<Compute<T>, 2, D>::uninitialized(shape(logits[0], 3), logits.memory(), Category::activations,
                                                       "cross_entropy_parts");
  logits.memory().count_flops(5.0 * static_cast<double>(logits.count()));
  note_moved(logits);
  launch<kernels::CrossEntropyParts<T>, D>(logits.memory(), logits[0], logits[1], logits.data(), targets.data(),
                                           first_column, valid_columns, parts.data(), wanted);
  return parts;
}

/// The loss of all ranks' parts [ranks, rows, 3], in rank order: the same bits on every rank. Rows with an ignored
/// target do not count, others count their weight; without targets all rows count, without weights each counts 1.
///
/// Cost     4 operations a part
/// Memory   rows + 2 numbers
/// Throws   Error(shape); Error(usage) for a weight that is negative or not finite
template <class C, class D>
constexpr CrossEntropyResult<C, D> cross_entropy_combine(const Tensor<C, 3, D>& parts,
                                                         const Tensor<std::int32_t, 1, D>& targets = {},
                                                         const Tensor<float, 1, D>& weights = {}) {
  detail::require_length(parts[2], 3, "cross_entropy_combine", "parts");
  if (targets) detail::require_length(targets[0], parts[1], "cross_entropy_combine", "targets");
  if (weights) {
    detail::require_length(weights[0], parts[1], "cross_entropy_combine", "weights");
    detail::require_weights(weights, "cross_entropy");
  }
  auto& memory = parts.memory();
  auto result = detail::uninitialized_result<C, D>(parts[1], memory);
  memory.count_flops(4.0 * static_cast<double>(parts[0] * parts[1]));
  launch<kernels::CrossEntropyCombine<C>, D>(memory, parts[0], parts[1], static_cast<const C*>(parts.data()),
                                             detail::data_or_null(targets), detail::data_or_null(weights),
                                             result.log_sum_exp.data(), result.loss.data(), result.counted.data());
  return result;
}

/// cross_entropy_parts and cross_entropy_combine of logits whose columns this rank has all. If all rows count, their
/// gradient for `dy` replaces the logits in the same pass over them; else they stay. cross_entropy_finish must follow
/// before anything reads them.
///
/// dy: what backward is expected to give, on the host; not 0.
///
/// Cost     5 operations an element
/// Memory   4 rows + 2 numbers, 3 rows of which are given back
/// Throws   as both
template <class T, class D>
constexpr CrossEntropyResult<Compute<T>, D> cross_entropy_in_place(Tensor<T, 2, D>& logits,
                                                                   const Tensor<std::int32_t, 1, D>& targets,
                                                                   Size valid_columns, Size vocabulary, Compute<T> dy,
                                                                   const Tensor<float, 1, D>& weights = {},
                                                                   TargetProbabilities wanted = {}) {
  using C = Compute<T>;
  const Size rows = logits[0];
  auto& memory = logits.memory();
  detail::require_length(targets[0], rows, "cross_entropy_in_place", "targets");
  detail::require_columns(valid_columns, logits[1], "cross_entropy_in_place");
  detail::require_targets(targets, vocabulary, "cross_entropy_parts");
  if (weights) {
    detail::require_length(weights[0], rows, "cross_entropy_in_place", "weights");
    detail::require_weights(weights, "cross_entropy");
  }
  const auto parts =
      Tensor<C, 2, D>::uninitialized(shape(rows, 3), memory, Category::activations, "cross_entropy_parts");
  auto result = detail::uninitialized_result<C, D>(rows, memory);
  memory.count_flops(5.0 * static_cast<double>(logits.count()) + 4.0 * static_cast<double>(rows));
  note_moved(logits, logits);
  launch<kernels::CrossEntropyInPlace<T>, D>(
      memory, rows, logits[1], logits.data(), targets.data(), detail::data_or_null(weights), valid_columns, dy,
      parts.data(), result.log_sum_exp.data(), result.loss.data(), result.counted.data(), wanted);
  return result;
}

/// The gradient for *dy after cross_entropy_in_place with `given`, in the same block: that itself where both are equal
/// and all rows count; else as cross_entropy_vjp, or the gradient for `given` times their quotient, rounded once more.
/// In f16 what underflowed or overflowed for `given` stays 0, inexact or infinite.
///
/// Cost     4 operations an element
/// Throws   Error(shape)
template <class T, class D>
constexpr Tensor<T, 2, D> cross_entropy_finish(Tensor<T, 2, D> logits, const Tensor<std::int32_t, 1, D>& targets,
                                               const Tensor<Compute<T>, 1, D>& log_sum_exp, Size valid_columns,
                                               Compute<T> given, const Scalar<Compute<T>, D>& dy,
                                               const Scalar<double, D>& counted,
                                               const Tensor<float, 1, D>& weights = {},
                                               TargetProbabilities wanted = {}) {
  detail::require_length(targets[0], logits[0], "cross_entropy_finish", "targets");
  detail::require_length(log_sum_exp[0], logits[0], "cross_entropy_finish", "a log_sum_exp");
  if (weights) detail::require_length(weights[0], logits[0], "cross_entropy_finish", "weights");
  detail::require_columns(valid_columns, logits[1], "cross_entropy_finish");
  logits.memory().count_flops(4.0 * static_cast<double>(logits.count()));
  launch<kernels::CrossEntropyFinish<T>, D>(logits.memory(), logits[0], logits[1], logits.data(), targets.data(),
                                            detail::data_or_null(weights), log_sum_exp.data(), valid_columns, given,
                                            static_cast<const Compute<T>*>(dy.data()),
                                            static_cast<const double*>(counted.data()), wanted);
  return logits;
}

/// dlogits = dy / counted * weight * (softmax(logits) - what is wanted), 0 in padded columns and where the target is
/// ignored. dy is the gradient of the loss, a weight is 1 if there are none, and one_hot(target) is wanted unless
/// labels are smoothed. In the logits' block if they are moved in and have no other handle.
///
/// Cost     4 operations an element
/// Memory   none or one tensor like the logits
/// Throws   Error(shape)
template <class T, class D>
constexpr Tensor<T, 2, D> cross_entropy_vjp(Tensor<T, 2, D> logits, const Tensor<std::int32_t, 1, D>& targets,
                                            const Tensor<Compute<T>, 1, D>& log_sum_exp, Size first_column,
                                            Size valid_columns, const Scalar<Compute<T>, D>& dy,
                                            const Scalar<double, D>& counted, const Tensor<float, 1, D>& weights = {},
                                            TargetProbabilities wanted = {}) {
  detail::require_length(targets[0], logits[0], "cross_entropy_vjp", "targets");
  detail::require_length(log_sum_exp[0], logits[0], "cross_entropy_vjp", "a log_sum_exp");
  if (weights) detail::require_length(weights[0], logits[0], "cross_entropy_vjp", "weights");
  detail::require_columns(valid_columns, logits[1], "cross_entropy_vjp");
  const Size rows = logits[0], columns = logits[1];
  const T* from = logits.data();
  auto dlogits = in_place_or_new(logits, "cross_entropy_vjp");
  dlogits.memory().count_flops(4.0 * static_cast<double>(rows * columns));
  note_moved(dlogits, dlogits);
  launch<kernels::CrossEntropyVjp<T>, D>(dlogits.memory(), rows, columns, dlogits.data(), from, targets.data(),
                                         detail::data_or_null(weights), log_sum_exp.data(), first_column, valid_columns,
                                         static_cast<const Compute<T>*>(dy.data()),
                                         static_cast<const double*>(counted.data()), wanted);
  return dlogits;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_smoothing(double label_smoothing) {
  fail(ErrorCode::usage, "dspp: cross_entropy needs a label_smoothing from 0 to 1, but it is " +
                             std::to_string(label_smoothing) + ". Give the share that all classes have together.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
