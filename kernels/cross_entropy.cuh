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
/// A block has a row. The first pass takes maximum and sum together and keeps the logits in shared memory; what has no
/// room there is read again, from the L2 cache. Losses of rows are summed in f64 and in an order that depends on `rows`
/// alone.
///
/// Bytes     2 sizeof(T) a logit: read once, written once
/// Source    Milakov and Gimelshein 2018, Online normalizer calculation for softmax, algorithm 3
#pragma once

#include <algorithm>

#include <dspp/ops/kernels.hpp>
#include <kernels/softmax_row.cuh>

namespace dspp::gpu {

/// Rows of up to 56,320 logits of 16 bits: two blocks a multiprocessor, with half of an H100's or H200's shared memory
/// each. Longer ones: one block, with all of it.
inline constexpr Size short_loss_bytes = 110 * 1024, long_loss_bytes = 220 * 1024;

/// 0 where a row does not count; targets and weights may be null.
__device__ inline float weight_of_row(Size row, const std::int32_t* targets, const float* weights) {
  if (targets != nullptr && targets[row] == ignored_target) return 0;
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

/// row_losses[i] = w[i] (lse[i] - sum of p x), and the gradient in place of the logits. The first `kept` packs of a row
/// stay in shared memory.
template <int Threads, class T>
__global__ void __launch_bounds__(Threads, 1024 / Threads)
    cross_entropy_kernel(Size columns, Size valid, int kept, T* logits, const std::int32_t* targets,
                         const float* weights, float each, float of_target, const float* dloss, const double* counted,
                         float* row_losses) {
  constexpr int V = RowPacks<T>::V, groups = 4, ahead = 4;
  using P = Pack<T, V>;
  const Size row = blockIdx.x;
  T* const x = logits + row * columns;
  P* const shared = static_cast<P*>(shared_memory());
  const RowPacks<T> all(columns, x), classes(valid, x);
  const int count = static_cast<int>(classes.count()), thread = static_cast<int>(threadIdx.x);
  const float weight = weight_of_row(row, targets, weights);
  float a[V];
  if (weight == 0) {
    const float zeros[V] = {};
    for (Size p = threadIdx.x; p < all.count(); p += Threads) all.store_part(x, all.column(p), zeros);
    if (threadIdx.x == 0) row_losses[row] = 0;
    return;
  }
  const Size target = targets[row];
  // Read by all before the barrier below, overwritten by one after it.
  const float at_target = classes.inside(target) ? to_float(x[target]) : not_a_number;
  const float scale = *counted > 0 ? static_cast<float>(static_cast<double>(*dloss) / *counted * weight) : 0;
  // All that has room in shared memory is asked for at once, in groups. No other thread reads what a thread copies.
  const int rounds = ((kept < count ? kept : count) + Threads - 1) / Threads;
  const int group_rounds = (rounds + groups - 1) / groups;
  for (int g = 0; g < groups; ++g) {
    for (int i = g * group_rounds; i < (g + 1) * group_rounds && i < rounds; ++i)
      if (const int p = i * Threads + thread; p < kept && p < count && classes.whole(classes.column(p)))
        copy_pack_async(&shared[p], x + classes.column(p));
    __pipeline_commit();
  }
  MaxAndSum<T> own;
  float plain_sum = 0;
  const auto add = [&](int p) {
    own.add(a);
    if (each != 0)
      for (int v = 0; v < V; ++v)
        if (classes.inside(classes.column(p) + v)) plain_sum += a[v];
  };
  DSPP_UNROLL
  for (int g = 0; g < groups; ++g) {
    __pipeline_wait_prior(groups - 1 - g);
    for (int i = g * group_rounds; i < (g + 1) * group_rounds && i < rounds; ++i)
      if (const int p = i * Threads + thread; p < kept && p < count) {
        if (classes.whole(classes.column(p)))
          unpack(a, shared[p]);
        else
          classes.load_part(a, x, classes.column(p), minus_infinity);
        add(p);
      }
  }
  for (int first = kept + thread; first < count; first += ahead * Threads) {
    P packs[ahead];
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (const int p = first + k * Threads; p < count && classes.whole(classes.column(p)))
        packs[k] = load_pack<V>(x + classes.column(p));
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (const int p = first + k * Threads; p < count) {
        if (classes.whole(classes.column(p)))
          unpack(a, packs[k]);
        else
          classes.load_part(a, x, classes.column(p), minus_infinity);
        add(p);
      }
  }
  if (each != 0) plain_sum = reduce_block(plain_sum, Plus{}, 0.0f);
  const MaxAndSum<T> total = own.of_block();
  const float lse = total.largest + logf(total.sum);
  if (threadIdx.x == 0) row_losses[row] = weight * (lse - of_target * at_target - (each != 0 ? each * plain_sum : 0));
  const float less = each * scale, less_at_target = of_target * scale;
  const int whole_count = static_cast<int>(all.count());
  for (int p = thread; p < whole_count; p += Threads) {
    const Size column = all.column(p);
    const bool whole = classes.whole(column);
    if (whole && p < kept)
      unpack(a, shared[p]);
    else
      classes.load_part(a, x, column, minus_infinity);
    for (int v = 0; v < V; ++v) a[v] = row_exp<T>(a[v] - lse) * scale - less;
    if (target >= column && target < column + V)
      for (int v = 0; v < V; ++v)
        if (column + v == target) a[v] -= less_at_target;
    if (!classes.inside(target))
      for (int v = 0; v < V; ++v) a[v] = not_a_number;
    if (!whole)
      for (int v = 0; v < V; ++v)
        if (column + v >= valid) a[v] = 0;
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
  const std::int32_t* targets = nullptr;  ///< [rows], from 0 to valid - 1, or ignored_target; others give NaN
  const float* weights = nullptr;         ///< [rows], or null: 1
  Size valid = 0;                         ///< classes
  TargetProbabilities wanted{};
};

/// The loss and its gradient, times *dloss (the loss scale), in place. row_losses: [rows].
template <class T>
void cross_entropy(cudaStream_t stream, Size rows, Size columns, T* logits, const LossArguments& of, const float* dloss,
                   float* row_losses, float* loss, double* counted) {
  const Work work{"cross_entropy", rows, columns};
  require_32_bits(work);
  launch(work, count_targets_kernel<1024>, Size{1}, {1024}, stream, rows, of.targets, of.weights, counted);
  const Size row_bytes = round_up(of.valid * Size{sizeof(T)}, 16) + 16;
  const bool is_short = row_bytes <= short_loss_bytes;
  const Size bytes = shared_bytes(work, std::min(row_bytes, is_short ? short_loss_bytes : long_loss_bytes));
  launch(work, is_short ? cross_entropy_kernel<512, T> : cross_entropy_kernel<1024, T>, rows,
         {is_short ? 512 : 1024, 1, bytes}, stream, columns, of.valid, bytes / 16, logits, of.targets, of.weights,
         static_cast<float>(of.wanted.each), static_cast<float>(of.wanted.target), dloss, counted, row_losses);
  launch(work, mean_loss_kernel<1024>, Size{1}, {1024}, stream, rows, row_losses, counted, loss);
}

}  // namespace dspp::gpu
