// SPDX-License-Identifier: Apache-2.0
/// Cross-entropy of rows of logits and its gradient, which replaces the logits in the same kernel.
///
///   loss = sum over rows of w[i] (lse[i] - sum over j of p[i, j] x[i, j]) / counted,   lse[i] = log sum exp(x[i, :])
///   x[i, j] <- dloss w[i] / counted (exp(x[i, j] - lse[i]) - p[i, j])                  counted = sum of w
///
/// x [rows, columns], of which the first `valid` are classes and the others padding; p[i, j] = each + (j is the row's
/// target ? target : 0): each = s / valid and target = 1 - s with label smoothing s. A row with the ignored target has
/// weight 0 and gradient 0, and so have columns of padding.
///
/// A block has a row: the first pass takes maximum and sum together, the second finds the row in the L2 cache. Losses
/// of rows are summed in f64 and in an order that depends on `rows` alone.
///
/// Bytes     2 sizeof(T) a logit: read once from memory, once from the cache, written once
/// Source    Milakov and Gimelshein 2018, Online normalizer calculation for softmax, algorithm 3
#pragma once

#include <dspp/ops/kernels.hpp>
#include <kernels/softmax_row.cuh>

namespace dspp::gpu {

inline constexpr int loss_threads = 512, loss_blocks = 3;  // a multiprocessor: what they read stays in the L2 cache

/// 0 where a row does not count.
__device__ inline float weight_of_row(Size row, const std::int32_t* targets, const float* weights) {
  if (targets[row] == ignored_target) return 0;
  return weights != nullptr ? weights[row] : 1;
}

/// *counted = sum of the rows' weights.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    count_targets_kernel(Size rows, const std::int32_t* targets, const float* weights, double* counted) {
  double sum = 0;
  for (Size i = threadIdx.x; i < rows; i += Threads) sum += static_cast<double>(weight_of_row(i, targets, weights));
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) *counted = sum;
}

/// row_losses[i] = w[i] (lse[i] - sum of p x), and the gradient in place of the logits.
template <class T>
__global__ void __launch_bounds__(loss_threads, loss_blocks)
    cross_entropy_kernel(Size columns, Size valid, T* logits, const std::int32_t* targets, const float* weights,
                         float each, float of_target, const float* dloss, const double* counted, float* row_losses) {
  const Size row = blockIdx.x;
  T* const x = logits + row * columns;
  const RowPacks<T> all(columns, x), classes(valid, x);
  constexpr int V = RowPacks<T>::V;
  const float weight = weight_of_row(row, targets, weights);
  const float zeros[V] = {};
  if (weight == 0) {
    for (Size p = threadIdx.x; p < all.count(); p += loss_threads) all.store_part(x, all.column(p), zeros);
    if (threadIdx.x == 0) row_losses[row] = 0;
    return;
  }
  MaxAndSum<T> own;
  float plain_sum = 0;
  for (Size p = threadIdx.x; p < classes.count(); p += loss_threads) {
    float a[V];
    classes.load_part(a, x, classes.column(p), minus_infinity);
    own.add(a);
    if (each != 0)
      for (int v = 0; v < V; ++v)
        if (const Size j = classes.column(p) + v; j >= 0 && j < valid) plain_sum += a[v];
  }
  const MaxAndSum<T> total = own.of_block();
  const float lse = total.largest + logf(total.sum);
  const Size target = targets[row];
  const float at_target = to_float(x[target]);  // read by all before one overwrites it: the barriers of the sums below
  if (each != 0) plain_sum = reduce_block(plain_sum, Plus{}, 0.0f);
  __syncthreads();
  if (threadIdx.x == 0) row_losses[row] = weight * (lse - of_target * at_target - (each != 0 ? each * plain_sum : 0));
  const float scale = *counted > 0 ? static_cast<float>(static_cast<double>(*dloss) / *counted * weight) : 0;
  for (Size p = threadIdx.x; p < all.count(); p += loss_threads) {
    const Size column = all.column(p);
    float a[V];
    all.load_part(a, x, column, 0);
    for (int v = 0; v < V; ++v) {
      const Size j = column + v;
      a[v] = j < valid ? (row_exp<T>(a[v] - lse) - each - (j == target ? of_target : 0)) * scale : 0;
    }
    all.store_part(x, column, a);
  }
}

/// *loss = sum of the rows' losses / *counted.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    mean_loss_kernel(Size rows, const float* row_losses, const double* counted, float* loss) {
  double sum = 0;
  for (Size i = threadIdx.x; i < rows; i += Threads) sum += static_cast<double>(row_losses[i]);
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) *loss = *counted > 0 ? static_cast<float>(sum / *counted) : 0;
}

/// What a loss is computed of, beside the logits.
struct LossArguments {
  const std::int32_t* targets = nullptr;  ///< [rows], from 0 to valid - 1, or ignored_target
  const float* weights = nullptr;         ///< [rows], or null: 1
  Size valid = 0;                         ///< classes
  TargetProbabilities wanted{};
};

/// The loss and its gradient, times *dloss (the loss scale), in place. row_losses: [rows].
template <class T>
void cross_entropy(cudaStream_t stream, Size rows, Size columns, T* logits, const LossArguments& of, const float* dloss,
                   float* row_losses, float* loss, double* counted) {
  const Work work{"cross_entropy", rows, columns};
  launch(work, count_targets_kernel<1024>, Size{1}, {1024}, stream, rows, of.targets, of.weights, counted);
  launch(work, cross_entropy_kernel<T>, rows, {loss_threads}, stream, columns, of.valid, logits, of.targets, of.weights,
         static_cast<float>(of.wanted.each), static_cast<float>(of.wanted.target), dloss, counted, row_losses);
  launch(work, mean_loss_kernel<1024>, Size{1}, {1024}, stream, rows, row_losses, counted, loss);
}

}  // namespace dspp::gpu
