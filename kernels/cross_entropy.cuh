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
/// each, or eight for rows of at most 16 KiB. Longer ones: one block, with all of it.
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
  RowPacks<T> classes;
  T* line;  ///< of pack 0
  Size target;
  float weight;
  int kept;  ///< of the packs [classes.first, classes.end) those below it are in shared memory

  __device__ LossRow(Size row, Size rows, Size columns, int most_kept, const LossArguments& of, T* logits)
      : classes(of.valid, logits + (row < rows ? row : 0) * columns),
        line(line_of(logits + (row < rows ? row : 0) * columns)),
        target(row < rows ? of.targets[row] : 0),
        weight(row < rows ? weight_of_row(row, of.targets, of.weights) : 0),
        kept(weight == 0               ? 0
             : classes.end < most_kept ? classes.end
                                       : most_kept) {}
  __device__ bool keeps(int pack) const { return pack >= classes.first && pack < kept; }
  __device__ T* pack(int pack) const { return line + static_cast<Size>(pack) * RowPacks<T>::V; }
  __device__ T* x() const { return line + classes.before; }
};

/// The parts of each row, and the gradient in place of the logits. The first `most_kept` packs of a row stay in shared
/// memory.
template <int Threads, class T>
__global__ void __launch_bounds__(Threads, 1024 / Threads)
    cross_entropy_kernel(Size rows, Size columns, int most_kept, T* logits, LossArguments of, float each,
                         float of_target, float* parts, const double* counted) {
  constexpr int V = RowPacks<T>::V, groups = 4, ahead = 4;
  using P = Pack<T, V>;
  P* const shared = static_cast<P*>(shared_memory());
  __shared__ MaxAndSum<T> of_warps[2][warp_size];  // of counted rows in turn: one barrier a row is enough
  const int thread = static_cast<int>(threadIdx.x);
  // Packs that are waited for together.
  const int group = (most_kept + groups * Threads - 1) / (groups * Threads) * Threads;
  const double scale_of_all = loss_scale(of.dloss, *counted);
  const bool writes = !of.if_all_count || all_rows_count(rows, *counted);
  // No other thread reads what a thread copies.
  const auto copy = [](const LossRow<T>& from, int p, P* slot) {
    if (from.keeps(p)) copy_pack_async(slot, from.pack(p));
  };
  LossRow<T> own(blockIdx.x, rows, columns, most_kept, of, logits);
  for (int g = 0; g < groups; ++g) {
    P* slot = shared + g * group + thread;
    for (int p = g * group + thread; p < (g + 1) * group; p += Threads, slot += Threads) copy(own, p, slot);
    __pipeline_commit();
  }
  float a[V];
  int parity = 0;
  for (Size row = blockIdx.x; row < rows; row += gridDim.x) {
    const LossRow<T> next(row + gridDim.x, rows, columns, most_kept, of, logits);
    const bool counts = own.weight != 0, is_class = own.classes.inside(own.target);
    float at_target = not_a_number, plain_sum = 0;
    // Read before the barrier below, overwritten after it.
    if (thread == 0 && counts && is_class) at_target = to_float(own.x()[own.target]);
    MaxAndSum<T> sums;
    const auto add = [&] {
      sums.add(a);
      if (each != 0) plain_sum += sum_of(a);
    };
    DSPP_UNROLL
    for (int g = 0; g < groups; ++g) {
      __pipeline_wait_prior(groups - 1 - g);
      const P* slot = shared + g * group + thread;
      for (int p = g * group + thread; p < (g + 1) * group; p += Threads, slot += Threads)
        if (own.keeps(p)) {
          unpack(a, *slot);
          add();
        }
    }
    if (counts) {
      for (int first = most_kept + thread; first < own.classes.end; first += ahead * Threads) {
        P packs[ahead];
        DSPP_UNROLL
        for (int k = 0; k < ahead; ++k)
          if (const int p = first + k * Threads; p < own.classes.end) packs[k] = load_pack<V>(own.pack(p));
        DSPP_UNROLL
        for (int k = 0; k < ahead; ++k)
          if (first + k * Threads < own.classes.end) {
            unpack(a, packs[k]);
            add();
          }
      }
      if (thread < 2) add_edge(sums, plain_sum, own.classes, own.x(), thread);
      if (each != 0) plain_sum = reduce_block(plain_sum, Plus{}, 0.0f);
      sums = sums.of_block(of_warps[parity]);
      parity ^= 1;  // not after a row without a barrier
    }
    if (thread == 0) {
      parts[3 * row] = counts ? sums.largest : 0;
      parts[3 * row + 1] = counts ? sums.sum : 1;
      parts[3 * row + 2] = counts ? wanted_of_row(of_target, at_target, each, plain_sum) : 0;
    }
    const float scale = is_class ? static_cast<float>(scale_of_all * own.weight) : not_a_number;
    const RowGradient<T> gradient(own.classes, sums.largest + logf(sums.sum), own.target, each, of_target, scale);
    const auto write = [&](int p) {
      gradient(a, p);
      store_at_once(own.pack(p), a);
    };
    for (int g = 0; g < groups; ++g) {
      P* slot = shared + g * group + thread;
      for (int p = g * group + thread; p < (g + 1) * group; p += Threads, slot += Threads) {
        if (writes && own.keeps(p)) {
          unpack(a, *slot);
          write(p);
        }
        copy(next, p, slot);
      }
      __pipeline_commit();
    }
    if (writes && counts) {
      for (int p = most_kept + thread; p < own.classes.end; p += Threads) {
        load(a, own.pack(p));
        write(p);
      }
      if (thread < 2) gradient_of_edge(own.classes, gradient, own.x(), own.x(), thread);
    }
    if (writes) {  // columns of padding, or all of a row that does not count
      const Size first = counts ? of.valid : 0;
      zero_row(own.x() + first, columns - first, Threads);
    }
    own = next;
  }
}

/// row[j] *= factor for j < n, by a block of part_threads threads.
template <class T>
__device__ inline void multiply_row(T* row, Size n, float factor) {
  constexpr int V = RowPacks<T>::V;
  const RowPacks<T> packs(n, row);
  const int thread = static_cast<int>(threadIdx.x), edge = thread < 2 ? packs.edge(thread) : -1;
  float a[V];
  for (int p = thread; p < packs.end; p += part_threads)
    if (p >= packs.first) {
      T* const at = line_of(row) + static_cast<Size>(p) * V;
      load(a, at);
      for (int v = 0; v < V; ++v) a[v] *= factor;
      store_at_once(at, a);
    }
  if (edge < 0) return;
  packs.load_edge(a, row, edge, 0);
  for (int v = 0; v < V; ++v) a[v] *= factor;
  packs.store_edge(row, edge, a);
}

/// What cross_entropy with if_all_count and dloss `given` left to do, where dloss is *dloss: see above.
template <class T>
__global__ void __launch_bounds__(part_threads)
    cross_entropy_finish_kernel(Size rows, Size columns, Size valid, T* logits, const std::int32_t* targets,
                                const float* weights, const float* log_sum_exp, float each, float of_target,
                                float given, const float* dloss, const double* counted) {
  const bool is_there = all_rows_count(rows, *counted);
  const float factor = *dloss / given;
  if (is_there && *dloss == given) return;
  for (Size row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const x = logits + row * columns;
    const float weight = weight_of_row(row, targets, weights);
    if (is_there) {
      multiply_row(x, valid, factor);
    } else if (weight == 0) {
      zero_row(x, columns, part_threads);
    } else {
      const auto scale = static_cast<float>(loss_scale(*dloss, *counted) * weight);
      const RowPacks<T> classes(valid, x);
      const RowGradient<T> gradient(classes, log_sum_exp[row], targets[row], each, of_target, scale);
      gradient_of_row<T>(columns, classes, gradient, x, x);
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
  const bool is_long = row_bytes > short_loss_bytes;
  const int threads = is_long ? 1024 : loss_threads<T>(of.valid);
  const Size bytes = shared_bytes(work, std::min(row_bytes, is_long ? long_loss_bytes : short_loss_bytes));
  const auto kernel = is_long          ? cross_entropy_kernel<1024, T>
                      : threads == 128 ? cross_entropy_kernel<128, T>
                                       : cross_entropy_kernel<part_threads, T>;
  launch(work, kernel, std::min(rows, multiprocessors(work) * (1024 / threads)), {threads, 1, bytes}, stream, rows,
         columns, bytes / 16, logits, of, static_cast<float>(of.wanted.each), static_cast<float>(of.wanted.target),
         to.parts, to.counted);
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
