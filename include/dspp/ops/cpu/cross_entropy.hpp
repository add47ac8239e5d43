// SPDX-License-Identifier: Apache-2.0
/// Cross-entropy of rows of logits, in parts that are combined over ranks with other columns.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// parts[i] = (max over valid columns, sum of exp(x - max), sum of x times the probability that is wanted of it).
template <class T>
struct Kernel<kernels::CrossEntropyParts<T>, Cpu> {
  static void run(Size rows, Size columns, const T* logits, const std::int32_t* targets, Size first_column,
                  Size valid_columns, Compute<T>* parts, TargetProbabilities wanted);
};

/// log_sum_exp[i] over the parts of all ranks, and the sum over rows of weight (log_sum_exp[i] - wanted logit);
/// `targets` and `weights` may be null. parts: [ranks, rows, 3]; ranks in order, rows in order, the sum in f64: the
/// same bits on every rank.
template <class C>
struct Kernel<kernels::CrossEntropyCombine<C>, Cpu> {
  static void run(Size ranks, Size rows, const C* parts, const std::int32_t* targets, const float* weights,
                  C* log_sum_exp, C* loss, double* counted);
};

/// dlogits[i, j] = *dy / *counted weight (exp(logits[i, j] - log_sum_exp[i]) - the probability that is wanted of j), 0
/// in padded columns and in rows that do not count. `weights` may be null, `dlogits` may be `logits`.
template <class T>
struct Kernel<kernels::CrossEntropyVjp<T>, Cpu> {
  static void run(Size rows, Size columns, T* dlogits, const T* logits, const std::int32_t* targets,
                  const float* weights, const Compute<T>* log_sum_exp, Size first_column, Size valid_columns,
                  const Compute<T>* dy, const double* counted, TargetProbabilities wanted);
};

/// The three above, one after another: their bits.
template <class T>
struct Kernel<kernels::CrossEntropyInPlace<T>, Cpu> {
  static void run(Size rows, Size columns, T* logits, const std::int32_t* targets, const float* weights,
                  Size valid_columns, Compute<T> dy, Compute<T>* parts, Compute<T>* log_sum_exp, Compute<T>* loss,
                  double* counted, TargetProbabilities wanted);
};

/// What is left: nothing, the vjp, or a multiplication by *dy / given of the classes' gradients.
template <class T>
struct Kernel<kernels::CrossEntropyFinish<T>, Cpu> {
  static void run(Size rows, Size columns, T* logits, const std::int32_t* targets, const float* weights,
                  const Compute<T>* log_sum_exp, Size valid_columns, Compute<T> given, const Compute<T>* dy,
                  const double* counted, TargetProbabilities wanted);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <algorithm>
#include <limits>

#include <dspp/ops/cpu/softmax.hpp>

namespace dspp::cpu {

/// The weight of row i: 1 if there are no weights, and 0 if its target is ignored.
inline double weight_of_row(Size i, const std::int32_t* targets, const float* weights) {
  if (targets != nullptr && targets[i] == ignored_target) return 0;
  return weights != nullptr ? static_cast<double>(weights[i]) : 1;
}

/// A weighted sum over rows, and the sum of their weights.
struct CountedSum {
  double sum = 0;
  double counted = 0;
};

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::CrossEntropyParts<T>, Cpu>::run(Size rows, Size columns, const T* logits,
                                                     const std::int32_t* targets, Size first_column, Size valid_columns,
                                                     Compute<T>* parts, TargetProbabilities wanted) {
  using namespace cpu;
  using C = Compute<T>;
  const C at_target = static_cast<C>(wanted.target), each = static_cast<C>(wanted.each);
  parallel_for(rows, row_grain(columns), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const T* row = logits + i * columns;
      const C largest = row_max(valid_columns, row);
      const Size target = targets[i] - first_column;
      parts[3 * i] = largest;
      // Of minus infinity alone the sum is 0: another rank may have finite logits of the row.
      const C shift = largest == -std::numeric_limits<C>::infinity() ? C(0) : largest;
      parts[3 * i + 1] = row_sum_exp(valid_columns, row, shift);
      parts[3 * i + 2] = target >= 0 && target < valid_columns ? at_target * static_cast<C>(row[target]) : C(0);
      if (each != 0) parts[3 * i + 2] += each * row_sum(valid_columns, row);
    }
  });
}

template <class C>
void Kernel<kernels::CrossEntropyCombine<C>, Cpu>::run(Size ranks, Size rows, const C* parts,
                                                       const std::int32_t* targets, const float* weights,
                                                       C* log_sum_exp, C* loss, double* counted) {
  using namespace cpu;
  CountedSum total;
  for (Size i = 0; i < rows; ++i) {
    C largest = parts[3 * i], sum = 0, logit = 0;
    for (Size rank = 1; rank < ranks; ++rank) {
      const C candidate = parts[3 * (rank * rows + i)];
      largest = candidate > largest ? candidate : largest;
    }
    for (Size rank = 0; rank < ranks; ++rank) {
      const C* part = parts + 3 * (rank * rows + i);
      sum += part[1] * math::exp(part[0] - largest);
      logit += part[2];
    }
    log_sum_exp[i] = largest + math::log(sum);
    const double weight = weight_of_row(i, targets, weights);
    if (weight == 0) continue;
    total.sum += weight * (static_cast<double>(log_sum_exp[i]) - static_cast<double>(logit));
    total.counted += weight;
  }
  *loss = static_cast<C>(total.counted > 0 ? total.sum / total.counted : 0);
  *counted = total.counted;
}

template <class T>
void Kernel<kernels::CrossEntropyVjp<T>, Cpu>::run(Size rows, Size columns, T* dlogits, const T* logits,
                                                   const std::int32_t* targets, const float* weights,
                                                   const Compute<T>* log_sum_exp, Size first_column, Size valid_columns,
                                                   const Compute<T>* dy, const double* counted,
                                                   TargetProbabilities wanted) {
  using namespace cpu;
  using C = Compute<T>;
  const C each = static_cast<C>(wanted.each), of_target = static_cast<C>(wanted.target);
  const double scale = *counted > 0 ? static_cast<double>(*dy) / *counted : 0;
  parallel_for(rows, row_grain(columns), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const T* row = logits + i * columns;
      T* out = dlogits + i * columns;
      const double weight = weight_of_row(i, targets, weights);
      if (weight == 0) {
        std::fill_n(out, columns, T{});
        continue;
      }
      const C row_scale = static_cast<C>(scale * weight);
      const Size target = targets[i] - first_column;
      const bool here = target >= 0 && target < valid_columns;
      const C at_target = here ? math::exp(static_cast<C>(row[target]) - log_sum_exp[i]) - each - of_target : C(0);
      row_exp(valid_columns, out, row, log_sum_exp[i], row_scale, each);
      if (here) out[target] = static_cast<T>(at_target * row_scale);
      std::fill_n(out + valid_columns, columns - valid_columns, T{});
    }
  });
}

template <class T>
void Kernel<kernels::CrossEntropyInPlace<T>, Cpu>::run(Size rows, Size columns, T* logits, const std::int32_t* targets,
                                                       const float* weights, Size valid_columns, Compute<T> dy,
                                                       Compute<T>* parts, Compute<T>* log_sum_exp, Compute<T>* loss,
                                                       double* counted, TargetProbabilities wanted) {
  Kernel<kernels::CrossEntropyParts<T>, Cpu>::run(rows, columns, logits, targets, 0, valid_columns, parts, wanted);
  Kernel<kernels::CrossEntropyCombine<Compute<T>>, Cpu>::run(1, rows, parts, targets, weights, log_sum_exp, loss,
                                                             counted);
  if (*counted == static_cast<double>(rows))
    Kernel<kernels::CrossEntropyVjp<T>, Cpu>::run(rows, columns, logits, logits, targets, weights, log_sum_exp, 0,
                                                  valid_columns, &dy, counted, wanted);
}

template <class T>
void Kernel<kernels::CrossEntropyFinish<T>, Cpu>::run(Size rows, Size columns, T* logits, const std::int32_t* targets,
                                                      const float* weights, const Compute<T>* log_sum_exp,
                                                      Size valid_columns, Compute<T> given, const Compute<T>* dy,
                                                      const double* counted, TargetProbabilities wanted) {
  using namespace cpu;
  if (*counted != static_cast<double>(rows))
    return Kernel<kernels::CrossEntropyVjp<T>, Cpu>::run(rows, columns, logits, logits, targets, weights, log_sum_exp,
                                                         0, valid_columns, dy, counted, wanted);
  if (*dy == given) return;
  const Compute<T> factor = *dy / given;
  parallel_for(rows, row_grain(columns), [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      T* row = logits + i * columns;
      for (Size j = 0; j < valid_columns; ++j) row[j] = static_cast<T>(static_cast<Compute<T>>(row[j]) * factor);
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
