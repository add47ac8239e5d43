// SPDX-License-Identifier: Apache-2.0
/// Cross-entropy of whole rows of logits and its gradient, which replaces the logits in the same pass over them.
///
///   loss = sum over rows of w[i] (lse[i] - sum over j of p[i, j] x[i, j]) / counted,   lse[i] = log sum exp(x[i, :])
///   x[i, j] <- dloss w[i] / counted (exp(x[i, j] - lse[i]) - p[i, j])                  counted = sum of w
///
/// x [rows, columns]; the letters are those of cross_entropy_parts.cuh, which also combines what rows give here.
///
/// As many blocks as have room at once take one row after another. The first pass over a row takes maximum and sum
/// together, of logits that lie in shared memory; the second writes the gradient, and each thread then asks at once for
/// the next row's logits in the places that it has read: while a block writes, it also reads, and while it computes,
/// the other block of its multiprocessor does. What has no room in shared memory is read again, from the L2 cache.
///
/// A training gives the dloss of its backward pass before that is known: that of a batch whose rows all count 1. Where
/// others do not count, or weigh more or less, the pass gives the loss alone; the backward pass looks at the same
/// numbers, and gives what is missing: the gradient, or the factor by which dloss is another.
///
/// Bytes     2 sizeof(T) a logit: read once, written once; the backward pass nothing, or once more where dloss is
///           another or not all rows count
/// Source    Milakov and Gimelshein 2018, Online normalizer calculation for softmax, algorithm 3
#pragma once

#include <algorithm>

#include <kernels/cross_entropy_parts.cuh>

namespace dspp::gpu {

/// Rows of up to 56,000 logits of 16 bits: two blocks a multiprocessor, with half of an H100's or H200's shared memory
/// each. Longer ones: one block, with all of it.
inline constexpr Size short_loss_bytes = 110 * 1024, long_loss_bytes = 220 * 1024;

/// *counted = sum of the rows' weights.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    count_targets_kernel(Size rows, const std::int32_t* targets, const float* weights, double* counted) {
  double sum = 0;
  for (Size i = threadIdx.x; i < rows; i += Threads) sum += static_cast<double>(weight_of_row(i, targets, weights));
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) *counted = sum;
}

/// Whether each row counts 1, or the weights of rows happen to have that sum: one pass then gives the gradient, too.
__device__ inline bool all_rows_count(Size rows, double counted) {
  return counted == static_cast<double>(rows);
}

/// What a loss is computed of, beside the logits.
struct LossArguments {
  const std::int32_t* targets = nullptr;  ///< [rows], from 0 to valid - 1, or ignored_target; others give NaN
  const float* weights = nullptr;         ///< [rows], or null: 1
  Size valid = 0;                         ///< classes
  TargetProbabilities wanted{};
  float dloss = 1;            ///< the loss scale
  bool if_all_count = false;  ///< the gradient replaces the logits only if all_rows_count
};

/// What it gives beside the gradient.
struct LossResult {
  float* parts = nullptr;        ///< [rows, 3], as those of cross_entropy_parts; (0, 1, 0) where a row does not count
  float* log_sum_exp = nullptr;  ///< [rows]
  float* loss = nullptr;         ///< 1
  double* counted = nullptr;     ///< 1
};

/// A row of the kernel below. None beyond the last: it has weight 0, and nothing is read of it.
template <class T>
struct LossRow {
  T* x;
  RowPacks<T> classes;
  Size target;
  float weight;
  __device__ LossRow(Size row, Size rows, Size columns, const LossArguments& of, T* logits)
      : x(logits + (row < rows ? row : 0) * columns),
        classes(of.valid, x),
        target(row < rows ? of.targets[row] : 0),
        weight(row < rows ? weight_of_row(row, of.targets, of.weights) : 0) {}
  __device__ bool is_whole(int pack) const { return classes.whole(classes.column(pack)); }
  /// Logits of the classes of a pack; minus infinity beside them. `kept` in shared memory, if the pack is whole.
  __device__ void load(float (&to)[RowPacks<T>::V], int pack, const Pack<T, RowPacks<T>::V>* kept) const {
    if (kept != nullptr && is_whole(pack))
      unpack(to, *kept);
    else
      classes.load_part(to, x, classes.column(pack), minus_infinity);
  }
};

/// The parts of each row, and the gradient in place of the logits. The first `kept` packs of a row stay in shared
/// memory.
template <int Threads, class T>
__global__ void __launch_bounds__(Threads, 1024 / Threads)
    cross_entropy_kernel(Size rows, Size columns, int kept, T* logits, LossArguments of, float each, float of_target,
                         float* parts, const double* counted) {
  constexpr int V = RowPacks<T>::V, groups = 4, ahead = 4;
  using P = Pack<T, V>;
  P* const shared = static_cast<P*>(shared_memory());
  __shared__ MaxAndSum<T> of_warps[2][warp_size];  // of even and odd rows: one barrier a row is enough
  const int thread = static_cast<int>(threadIdx.x);
  const int rounds = (kept + Threads - 1) / Threads, group_rounds = (rounds + groups - 1) / groups;
  const double scale_of_all = loss_scale(of.dloss, *counted);
  const bool writes = !of.if_all_count || all_rows_count(rows, *counted);
  // No other thread reads what a thread copies.
  const auto copy = [&](const LossRow<T>& from, int p) {
    if (from.weight != 0 && p < kept && from.is_whole(p)) copy_pack_async(&shared[p], from.x + from.classes.column(p));
  };
  LossRow<T> own(blockIdx.x, rows, columns, of, logits);
  for (int g = 0; g < groups; ++g) {
    for (int i = g * group_rounds; i < (g + 1) * group_rounds && i < rounds; ++i) copy(own, i * Threads + thread);
    __pipeline_commit();
  }
  float a[V];
  int parity = 0;
  for (Size row = blockIdx.x; row < rows; row += gridDim.x, parity ^= 1) {
    const LossRow<T> next(row + gridDim.x, rows, columns, of, logits);
    const RowPacks<T> all(columns, own.x);
    const int count = static_cast<int>(own.classes.count()), whole_count = static_cast<int>(all.count());
    const bool is_class = own.classes.inside(own.target);
    float at_target = not_a_number, plain_sum = 0, lse = 0;
    // Read before the barrier below, overwritten after it.
    if (thread == 0 && own.weight != 0 && is_class) at_target = to_float(own.x[own.target]);
    MaxAndSum<T> sums;
    const auto add = [&](int p) {
      sums.add(a);
      if (each != 0)
        for (int v = 0; v < V; ++v)
          if (own.classes.inside(own.classes.column(p) + v)) plain_sum += a[v];
    };
    DSPP_UNROLL
    for (int g = 0; g < groups; ++g) {
      __pipeline_wait_prior(groups - 1 - g);
      for (int i = g * group_rounds; i < (g + 1) * group_rounds && i < rounds; ++i)
        if (const int p = i * Threads + thread; own.weight != 0 && p < kept && p < count) {
          own.load(a, p, &shared[p]);
          add(p);
        }
    }
    if (own.weight != 0) {
      for (int first = kept + thread; first < count; first += ahead * Threads) {
        P packs[ahead];
        DSPP_UNROLL
        for (int k = 0; k < ahead; ++k)
          if (const int p = first + k * Threads; p < count && own.is_whole(p))
            packs[k] = load_pack<V>(own.x + own.classes.column(p));
        DSPP_UNROLL
        for (int k = 0; k < ahead; ++k)
          if (const int p = first + k * Threads; p < count) {
            own.load(a, p, &packs[k]);
            add(p);
          }
      }
      if (each != 0) plain_sum = reduce_block(plain_sum, Plus{}, 0.0f);
      const MaxAndSum<T> total = sums.of_block(of_warps[parity]);
      lse = total.largest + logf(total.sum);
      sums = total;
    }
    if (thread == 0) {
      parts[3 * row] = own.weight != 0 ? sums.largest : 0;
      parts[3 * row + 1] = own.weight != 0 ? sums.sum : 1;
      parts[3 * row + 2] = own.weight != 0 ? of_target * at_target + (each != 0 ? each * plain_sum : 0) : 0;
    }
    const float scale = is_class ? static_cast<float>(scale_of_all * own.weight) : not_a_number;
    const auto write = [&](int p, const P* from) {
      const Size column = all.column(p);
      if (own.weight != 0) {
        own.load(a, p, from);
        logits_to_gradient<T>(a, lse, each, of_target, scale, own.target - column);
      }
      if (own.weight == 0 || !own.is_whole(p))
        for (int v = 0; v < V; ++v)
          if (own.weight == 0 || column + v >= of.valid) a[v] = 0;
      all.store_part(own.x, column, a);
    };
    for (int g = 0; g < groups; ++g) {
      for (int i = g * group_rounds; i < (g + 1) * group_rounds && i < rounds; ++i) {
        const int p = i * Threads + thread;
        if (writes && p < kept && p < whole_count) write(p, &shared[p]);
        copy(next, p);
      }
      __pipeline_commit();
    }
    if (writes)
      for (int p = kept + thread; p < whole_count; p += Threads) write(p, nullptr);
    own = next;
  }
}

/// What cross_entropy with if_all_count and dloss `given` left to do, where dloss is *dloss: see above.
template <class T>
__global__ void __launch_bounds__(part_threads)
    cross_entropy_finish_kernel(Size rows, Size columns, Size valid, T* logits, const std::int32_t* targets,
                                const float* weights, const float* log_sum_exp, float each, float of_target,
                                float given, const float* dloss, const double* counted) {
  constexpr int V = RowPacks<T>::V;
  const bool is_there = all_rows_count(rows, *counted);
  const float factor = *dloss / given;
  if (is_there && *dloss == given) return;
  for (Size row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const x = logits + row * columns;
    const RowPacks<T> classes(valid, x);
    if (!is_there) {
      const float weight = weight_of_row(row, targets, weights);
      const auto scale = static_cast<float>(loss_scale(*dloss, *counted) * weight);
      gradient_of_row<T>(RowPacks<T>(columns, x), classes,
                         {targets[row], log_sum_exp[row], each, of_target, scale, weight != 0}, x, x);
      continue;
    }
    float a[V];
    for (Size p = threadIdx.x; p < classes.count(); p += part_threads) {
      classes.load_part(a, x, classes.column(p), 0);
      for (int v = 0; v < V; ++v) a[v] *= factor;
      classes.store_part(x, classes.column(p), a);
    }
  }
}

/// The loss and its gradient, in place.
template <class T>
void cross_entropy(cudaStream_t stream, Size rows, Size columns, T* logits, const LossArguments& of,
                   const LossResult& to) {
  const Work work{"cross_entropy", rows, columns};
  require_32_bits(work);
  launch(work, count_targets_kernel<1024>, Size{1}, {1024}, stream, rows, of.targets, of.weights, to.counted);
  const Size row_bytes = round_up(of.valid * Size{sizeof(T)}, 16) + RowPacks<T>::line_bytes;
  const bool is_short = row_bytes <= short_loss_bytes;
  const Size bytes = shared_bytes(work, std::min(row_bytes, is_short ? short_loss_bytes : long_loss_bytes));
  const Size blocks = std::min(rows, multiprocessors(work) * (is_short ? 2 : 1));
  launch(work, is_short ? cross_entropy_kernel<512, T> : cross_entropy_kernel<1024, T>, blocks,
         {is_short ? 512 : 1024, 1, bytes}, stream, rows, columns, bytes / 16, logits, of,
         static_cast<float>(of.wanted.each), static_cast<float>(of.wanted.target), to.parts, to.counted);
  cross_entropy_combine(stream, 1, rows, to.parts, of.targets, of.weights, to.log_sum_exp, to.loss, to.counted);
}

/// The gradient after cross_entropy with if_all_count, for *dloss.
template <class T>
void cross_entropy_finish(cudaStream_t stream, Size rows, Size columns, T* logits, const LossArguments& of,
                          const float* log_sum_exp, const float* dloss, const double* counted) {
  // Few blocks, since mostly there is nothing to do; a number that depends on nothing.
  launch(Work{"cross_entropy_finish", rows, columns}, cross_entropy_finish_kernel<T>, std::min(rows, Size{2048}),
         {part_threads}, stream, rows, columns, of.valid, logits, of.targets, of.weights, log_sum_exp,
         static_cast<float>(of.wanted.each), static_cast<float>(of.wanted.target), of.dloss, dloss, counted);
}

}  // namespace dspp::gpu
