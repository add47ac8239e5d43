// SPDX-License-Identifier: Apache-2.0
/// The sum of squares of an array [count], and with it whether all elements are finite, in one pass; or its sum.
///
///   squared_norm      total = sum over i of x[i]^2                sum   total = sum over i of x[i] / divisor
///   add_row_squares   sums[k] += sum over the k-th row of x[i]^2
///
/// In f64, where squares of f32 neither overflow nor underflow: `total` is finite exactly if every element is. In an
/// order that depends on count alone: a thread sums every so-many-th pack, a block its threads, a last block the
/// blocks.
///
/// Bytes     sizeof(T) an element
#pragma once

#include <kernels/element.cuh>
#include <kernels/reduce.cuh>

namespace dspp::gpu {

struct Square {
  __device__ double operator()(float a) const { return static_cast<double>(a) * static_cast<double>(a); }
};
struct Itself {
  __device__ double operator()(float a) const { return static_cast<double>(a); }
};

template <int V, class Term, class T>
__global__ void __launch_bounds__(norm_threads) sum_of_terms_kernel(Size count, const T* x, double* pieces) {
  const Size step = static_cast<Size>(gridDim.x) * norm_threads * V;
  constexpr int ahead = 4;  // loads before the first use
  double sum = 0;
  for (Size first = (static_cast<Size>(blockIdx.x) * norm_threads + threadIdx.x) * V; first < count;
       first += ahead * step) {
    Pack<T, V> packs[ahead];
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (first + k * step + V <= count) packs[k] = load_pack<V>(x + first + k * step);
    DSPP_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (first + k * step + V <= count) {
        float a[V];
        unpack(a, packs[k]);
        for (int v = 0; v < V; ++v) sum += Term{}(a[v]);
      } else {
        for (Size i = first + k * step; i < count; ++i) sum += Term{}(to_float(x[i]));
      }
  }
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) pieces[blockIdx.x] = sum;
}

/// *total (+)= sum of pieces / divisor, in order of threads.
template <int Threads, class U>
__global__ void __launch_bounds__(Threads)
    sum_term_pieces_kernel(Size count, const double* pieces, double divisor, U* total, bool accumulate) {
  double sum = 0;
  for (Size i = threadIdx.x; i < count; i += Threads) sum += pieces[i];
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) *total = static_cast<U>((accumulate ? static_cast<double>(*total) : 0) + sum / divisor);
}

template <class Term, class T, class U>
void sum_of_terms(const Work& work, cudaStream_t stream, const T* x, double* scratch, double divisor, U* total,
                  bool accumulate) {
  const Size count = work.columns, pieces = squared_norm_scratch(count);
  launch(work, is_aligned(x) ? sum_of_terms_kernel<pack_length<T>, Term, T> : sum_of_terms_kernel<1, Term, T>, pieces,
         {norm_threads}, stream, count, x, scratch);
  launch(work, sum_term_pieces_kernel<norm_threads, U>, Size{1}, {norm_threads}, stream, pieces, scratch, divisor,
         total, accumulate);
}

/// With `accumulate` for several arrays one after another. scratch: squared_norm_scratch(count) doubles.
template <class T, class U>
void squared_norm(cudaStream_t stream, Size count, const T* x, double* scratch, U* total, bool accumulate = false) {
  sum_of_terms<Square>(Work{"squared_norm", 1, count}, stream, x, scratch, 1.0, total, accumulate);
}

/// sums[k] += the squares of the k-th row of which elements [first, first + count) of a matrix are: a block a row.
template <int Threads, class T>
__global__ void __launch_bounds__(Threads)
    row_squares_kernel(Size count, Size columns, Size first, const T* x, double* sums) {
  const Size row = first / columns + blockIdx.x, begin = row * columns - first, end = begin + columns;
  double sum = 0;
  for (Size i = (begin < 0 ? 0 : begin) + threadIdx.x; i < (end < count ? end : count); i += Threads)
    sum += Square{}(to_float(x[i]));
  sum = reduce_block(sum, Plus{}, 0.0);
  if (threadIdx.x == 0) sums[blockIdx.x] += sum;
}

template <class T>
void add_row_squares(cudaStream_t stream, Size count, Size columns, Size first, const T* x, double* sums) {
  const Size rows = (first + count - 1) / columns - first / columns + 1;
  launch(Work{"add_row_squares", rows, columns}, row_squares_kernel<norm_threads, T>, rows, {norm_threads}, stream,
         count, columns, first, x, sums);
}

template <class T>
void sum(cudaStream_t stream, Size count, const T* x, double* scratch, double divisor, float* total) {
  sum_of_terms<Itself>(Work{"sum", 1, count}, stream, x, scratch, divisor, total, false);
}

}  // namespace dspp::gpu
