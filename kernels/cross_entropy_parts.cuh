// SPDX-License-Identifier: Apache-2.0
/// Cross-entropy of rows whose columns lie on several ranks: each rank reduces its own to three numbers a row, which
/// are gathered and combined, and then has the gradient of its columns. Where a rank has all columns, cross_entropy.cuh
/// does it in one pass.
///
///   parts[i] = (max over own classes, sum of exp(x - max), sum over own classes of p[i, j] x[i, j])
///   lse[i] = log sum over all ranks, loss = sum of w[i] (lse[i] - sum of the third numbers) / counted
///   dx[i, j] = dloss w[i] / counted (exp(x[i, j] - lse[i]) - p[i, j])
///
/// logits [rows, columns] of a rank, of which the first `valid` are classes, from `first_column` on, and the others
/// padding; parts [ranks, rows, 3], ranks in order; p[i, j] = each + (j is the row's target ? target : 0): each = s /
/// valid and target = 1 - s with label smoothing s; counted = sum of w. A row with the ignored target has weight 0 and
/// gradient 0, and so have columns of padding. A target that no rank has is not noticed here: who launches checks
/// targets.
///
/// Losses of rows are summed in f64 and in an order that depends on `rows` alone.
///
/// Bytes     sizeof(T) a logit for the parts, 2 sizeof(T) for the gradient
/// Source    Milakov and Gimelshein 2018, Online normalizer calculation for softmax, algorithm 3
#pragma once

#include <dspp/ops/kernels.hpp>
#include <kernels/softmax_row.cuh>

namespace dspp::gpu {

inline constexpr int part_threads = 512;  // of a block, at most

/// Threads of a row's block: few for a row of at most 16 KiB, of which many then lie side by side.
template <class T>
constexpr int loss_threads(Size classes) {
  return classes * Size{sizeof(T)} <= 16 * 1024 ? 128 : part_threads;
}

/// 0 where a row does not count; targets and weights may be null.
__device__ inline float weight_of_row(Size row, const std::int32_t* targets, const float* weights) {
  if (targets != nullptr && targets[row] == ignored_target) return 0;
  return weights != nullptr ? weights[row] : 1;
}

/// The third number of a row, rounded alike in both kernels that give it.
__device__ inline float wanted_of_row(float of_target, float at_target, float each, float plain_sum) {
  return fmaf(of_target, at_target, each != 0 ? each * plain_sum : 0.0f);
}

/// The gradient of what a row of weight 1 adds to the sum of losses.
__device__ inline double loss_scale(float dloss, double counted) {
  return counted > 0 ? static_cast<double>(dloss) / counted : 0;
}

/// What the gradient of a row is computed of.
template <class T>
class RowGradient {
 public:
  /// `target` is a column, which may be another rank's.
  __device__ RowGradient(const RowPacks<T>& classes, float lse, Size target, float each, float of_target, float scale)
      : exp_(lse),
        scale_(scale),
        less_(each * scale),
        less_at_target_(of_target * scale),
        pack_of_target_(classes.pack_of(target)),
        target_(static_cast<int>((target + classes.before) % RowPacks<T>::V)) {}
  /// The logits of a pack become their gradient.
  template <int V>
  __device__ void operator()(float (&a)[V], int pack) const {
    for (int v = 0; v < V; ++v) a[v] = fmaf(exp_(a[v]), scale_, -less_);
    if (pack == pack_of_target_)
      for (int v = 0; v < V; ++v) a[v] -= v == target_ ? less_at_target_ : 0;
  }

 private:
  ExpFrom<T> exp_;
  float scale_, less_, less_at_target_;
  int pack_of_target_, target_;
};

/// Adds what classes.edge(which) has to both sums.
template <class T>
__device__ inline void add_edge(MaxAndSum<T>& own, float& plain_sum, const RowPacks<T>& classes, const T* x,
                                int which) {
  constexpr int V = RowPacks<T>::V;
  const int p = classes.edge(which);
  if (p < 0) return;
  float a[V];
  classes.load_edge(a, x, p, minus_infinity);
  own.add(a);
  for (int v = 0; v < V; ++v)
    if (classes.inside(classes.column(p) + v)) plain_sum += a[v];
}

template <class T>
__global__ void __launch_bounds__(part_threads)
    cross_entropy_parts_kernel(Size columns, Size first_column, Size valid, const T* logits,
                               const std::int32_t* targets, float each, float of_target, float* parts) {
  constexpr int V = RowPacks<T>::V;
  const Size row = blockIdx.x, target = targets[row] - first_column;
  const T* const x = logits + row * columns;
  const RowPacks<T> classes(valid, x);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  float a[V], plain_sum = 0;
  MaxAndSum<T> own;
  for (int p = thread; p < classes.end; p += threads)
    if (p >= classes.first) {
      load(a, line_of(x) + static_cast<Size>(p) * V);
      own.add(a);
      if (each != 0) plain_sum += sum_of(a);
    }
  if (thread < 2) add_edge(own, plain_sum, classes, x, thread);
  if (each != 0) plain_sum = reduce_block(plain_sum, Plus{}, 0.0f);
  const MaxAndSum<T> total = own.of_block();
  if (threadIdx.x > 0) return;
  parts[3 * row] = total.largest;
  parts[3 * row + 1] = total.sum;
  parts[3 * row + 2] = wanted_of_row(of_target, classes.inside(target) ? to_float(x[target]) : 0, each, plain_sum);
}

/// lse[i]; a thread a row, ranks in order.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    cross_entropy_combine_kernel(Size ranks, Size rows, const float* parts, float* log_sum_exp) {
  const Size row = static_cast<Size>(blockIdx.x) * Threads + threadIdx.x;
  if (row >= rows) return;
  float largest = parts[3 * row], sum = 0;
  for (Size rank = 1; rank < ranks; ++rank) largest = Larger{}(largest, parts[3 * (rank * rows + row)]);
  for (Size rank = 0; rank < ranks; ++rank) {
    const float* const part = parts + 3 * (rank * rows + row);
    sum += part[1] * expf(part[0] - largest);
  }
  log_sum_exp[row] = largest + logf(sum);
}

/// *loss = sum of w[i] (lse[i] - the wanted logits) / *counted, in f64 and in an order that depends on rows alone.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    cross_entropy_mean_kernel(Size ranks, Size rows, const float* parts, const std::int32_t* targets,
                              const float* weights, const float* log_sum_exp, float* loss, double* counted) {
  double sum = 0, count = 0;
  for (Size row = threadIdx.x; row < rows; row += Threads) {
    const auto weight = static_cast<double>(weight_of_row(row, targets, weights));
    if (weight == 0) continue;
    float wanted = 0;
    for (Size rank = 0; rank < ranks; ++rank) wanted += parts[3 * (rank * rows + row) + 2];
    sum += weight * (static_cast<double>(log_sum_exp[row]) - static_cast<double>(wanted));
    count += weight;
  }
  sum = reduce_block(sum, Plus{}, 0.0);
  count = reduce_block(count, Plus{}, 0.0);
  if (threadIdx.x > 0) return;
  *loss = count > 0 ? static_cast<float>(sum / count) : 0;
  *counted = count;
}

/// The same of classes.edge(which), in `to`.
template <class T>
__device__ inline void gradient_of_edge(const RowPacks<T>& classes, const RowGradient<T>& gradient, T* to, const T* x,
                                        int which) {
  float a[RowPacks<T>::V];
  const int p = classes.edge(which);
  if (p < 0) return;
  classes.load_edge(a, x, p, 0);
  gradient(a, p);
  classes.store_edge(to, p, a);
}

/// A block's row: classes become their gradient, and what is beside them 0.
template <class T>
__device__ void gradient_of_row(Size columns, const RowPacks<T>& classes, const RowGradient<T>& gradient, T* to,
                                const T* x) {
  constexpr int V = RowPacks<T>::V;
  const bool alike = classes.alike(to);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  float a[V];
  for (int p = thread; p < classes.end; p += threads)
    if (p >= classes.first) {
      load(a, line_of(x) + static_cast<Size>(p) * V);
      gradient(a, p);
      if (alike)
        store_at_once(to + classes.column(p), a);
      else
        classes.store_edge(to, p, a);
    }
  if (thread < 2) gradient_of_edge(classes, gradient, to, x, thread);
  zero_row(to + classes.n, columns - classes.n, threads);
}

template <class T>
__global__ void __launch_bounds__(part_threads)
    cross_entropy_gradient_kernel(Size columns, Size first_column, Size valid, T* dlogits, const T* logits,
                                  const std::int32_t* targets, const float* weights, const float* log_sum_exp,
                                  float each, float of_target, const float* dloss, const double* counted) {
  const Size row = blockIdx.x, begin = row * columns;
  const float weight = weight_of_row(row, targets, weights);
  if (weight == 0) return zero_row(dlogits + begin, columns, static_cast<int>(blockDim.x));
  const auto scale = static_cast<float>(loss_scale(*dloss, *counted) * weight);
  const RowPacks<T> classes(valid, logits + begin);
  const RowGradient<T> gradient(classes, log_sum_exp[row], targets[row] - first_column, each, of_target, scale);
  gradient_of_row(columns, classes, gradient, dlogits + begin, logits + begin);
}

/// What a rank has of the columns.
struct OwnColumns {
  Size columns = 0;       ///< of a row in memory
  Size first_column = 0;  ///< of the whole row
  Size valid = 0;         ///< classes among them
};

template <class T>
void cross_entropy_parts(cudaStream_t stream, Size rows, const OwnColumns& own, const T* logits,
                         const std::int32_t* targets, const TargetProbabilities& wanted, float* parts) {
  launch(Work{"cross_entropy_parts", rows, own.columns}, cross_entropy_parts_kernel<T>, rows,
         {loss_threads<T>(own.valid)}, stream, own.columns, own.first_column, own.valid, logits, targets,
         static_cast<float>(wanted.each), static_cast<float>(wanted.target), parts);
}

/// The same bits on every rank. `targets` and `weights` may be null.
inline void cross_entropy_combine(cudaStream_t stream, Size ranks, Size rows, const float* parts,
                                  const std::int32_t* targets, const float* weights, float* log_sum_exp, float* loss,
                                  double* counted) {
  const Work work{"cross_entropy_combine", rows, ranks};
  launch(work, cross_entropy_combine_kernel<128>, blocks_for(rows, 128), {128}, stream, ranks, rows, parts,
         log_sum_exp);
  launch(work, cross_entropy_mean_kernel<1024>, Size{1}, {1024}, stream, ranks, rows, parts, targets, weights,
         log_sum_exp, loss, counted);
}

/// dlogits may be logits.
template <class T>
void cross_entropy_gradient(cudaStream_t stream, Size rows, const OwnColumns& own, T* dlogits, const T* logits,
                            const std::int32_t* targets, const float* weights, const float* log_sum_exp,
                            const TargetProbabilities& wanted, const float* dloss, const double* counted) {
  launch(Work{"cross_entropy_gradient", rows, own.columns}, cross_entropy_gradient_kernel<T>, rows,
         {loss_threads<T>(own.valid)}, stream, own.columns, own.first_column, own.valid, dlogits, logits, targets,
         weights, log_sum_exp, static_cast<float>(wanted.each), static_cast<float>(wanted.target), dloss, counted);
}

}  // namespace dspp::gpu
