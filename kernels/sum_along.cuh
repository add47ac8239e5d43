// SPDX-License-Identifier: Apache-2.0
/// Sums over some dimensions, and the largest elements along one.
///
///   sum_along     y[kept] = sum over the others of x / divisor, in f32, rounded once
///   sum_repeats   y[i, :] = sum over k < times of x[i times + k, :]
///   max_along     y[i, j] = the largest x[i, k, j] and its first k; NaN is larger than any number
///
/// Terms that lie one beside the other are shared by the threads of a warp, or of a block if they are many: the threads
/// read one beside the other, too. Of few results whose terms lie far apart, 16 threads share each. Else a thread has a
/// result. Each thread sums in runs of 64 terms, which are then summed: the error grows with 64 + terms / 64.
///
/// Bytes     sizeof(T) an element of x; up to 32 where a result has fewer than 32 terms in a row
#pragma once

#include <dspp/ops/kernels.hpp>
#include <kernels/each.cuh>
#include <kernels/reduce.cuh>

namespace dspp::gpu {

/// A sum in runs of 64 terms.
struct SumOfRuns {
  float run = 0, total = 0;
  int terms = 0;
  __device__ void add(float x) {
    run += x;
    if (++terms == 64) end_run();
  }
  __device__ void end_run() {
    total += run;
    run = 0;
    terms = 0;
  }
};

/// The offset of the i-th combination of dimensions, innermost first.
__device__ inline Size offset_of(Size i, int dimensions, const Size* extents, const Size* strides) {
  Size offset = 0;
  for (int d = 0; d < dimensions; ++d) {
    offset += i % extents[d] * strides[d];
    i /= extents[d];
  }
  return offset;
}

template <class T>
struct SumAlong {
  kernels::SumExtents at;
  Size terms;
  float divisor;
  T* y;
  const T* x;
  __device__ void operator()(Size i) const {
    const T* const from = x + offset_of(i, at.kept, at.kept_extents, at.kept_strides);
    SumOfRuns sum;
    for (Size k = 0; k < terms; ++k)
      sum.add(to_float(from[offset_of(k, at.summed, at.summed_extents, at.summed_strides)]));
    sum.end_run();
    y[i] = from_float<T>(sum.total / divisor);
  }
};

/// The threads of a row that share a result of so many terms: a warp, or a block.
inline Block block_of_terms(Size terms) {
  return terms > 32 * warp_size ? Block{8 * warp_size} : Block{warp_size, 8};
}

/// A result by the threads of a row of the block, where the innermost dimension is summed.
template <class T>
__global__ void __launch_bounds__(256) sum_terms_kernel(SumAlong<T> sum, Size count) {
  const Size i = static_cast<Size>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (i >= count) return;  // a whole warp
  const kernels::SumExtents& at = sum.at;
  const T* const from = sum.x + offset_of(i, at.kept, at.kept_extents, at.kept_strides);
  const Size length = at.summed_extents[0], steps = sum.terms / length;
  SumOfRuns own;
  for (Size step = 0; step < steps; ++step) {
    const T* const terms = from + offset_of(step, at.summed - 1, at.summed_extents + 1, at.summed_strides + 1);
    for (Size k = threadIdx.x; k < length; k += blockDim.x) own.add(to_float(terms[k]));
  }
  own.end_run();
  const float total = sum_of_row(own.total);
  if (threadIdx.x == 0) sum.y[i] = from_float<T>(total / sum.divisor);
}

/// 32 results that lie one beside the other by the rows of a block, each of which has its share of the terms.
inline constexpr int rows_of_terms = 16;
template <class T>
__global__ void __launch_bounds__(warp_size* rows_of_terms) share_terms_kernel(SumAlong<T> sum, Size count) {
  __shared__ float totals[rows_of_terms][warp_size];
  const Size i = static_cast<Size>(blockIdx.x) * warp_size + threadIdx.x;
  const kernels::SumExtents& at = sum.at;
  SumOfRuns own;
  if (i < count) {
    const T* const from = sum.x + offset_of(i, at.kept, at.kept_extents, at.kept_strides);
    for (Size k = threadIdx.y; k < sum.terms; k += rows_of_terms)
      own.add(to_float(from[offset_of(k, at.summed, at.summed_extents, at.summed_strides)]));
    own.end_run();
  }
  totals[threadIdx.y][threadIdx.x] = own.total;
  __syncthreads();
  if (threadIdx.y > 0 || i >= count) return;
  float total = 0;
  for (int row = 0; row < rows_of_terms; ++row) total += totals[row][threadIdx.x];
  sum.y[i] = from_float<T>(total / sum.divisor);
}

template <class T>
void sum_along(cudaStream_t stream, const kernels::SumExtents& at, double divisor, T* y, const T* x) {
  constexpr Size few = 65536;  // results that leave multiprocessors without work
  Size count = 1, terms = 1;
  for (int d = 0; d < at.kept; ++d) count *= at.kept_extents[d];
  for (int d = 0; d < at.summed; ++d) terms *= at.summed_extents[d];
  const Work work{"sum_along", terms, count};
  const SumAlong<T> sum{at, terms, static_cast<float>(divisor), y, x};
  const bool in_a_row = at.summed > 0 && at.summed_strides[0] == 1;
  if (in_a_row && at.summed_extents[0] >= warp_size) {
    const Block block = block_of_terms(at.summed_extents[0]);
    launch(work, sum_terms_kernel<T>, blocks_for(count, block.y), block, stream, sum, count);
  } else if (!in_a_row && count < few && terms >= 4 * rows_of_terms) {
    launch(work, share_terms_kernel<T>, blocks_for(count, warp_size), {warp_size, rows_of_terms}, stream, sum, count);
  } else {
    launch_each(work, stream, count, sum);
  }
}

template <class T>
struct SumRepeats {
  Size n, times;
  T* y;
  const T* x;
  __device__ void operator()(Size i) const {
    const T* const first = x + i / n * times * n + i % n;
    float sum = to_float(*first);
    for (Size k = 1; k < times; ++k) sum += to_float(first[k * n]);
    y[i] = from_float<T>(sum);
  }
};

template <class T>
void sum_repeats(cudaStream_t stream, Size rows, Size n, Size times, T* y, const T* x) {
  launch_each(Work{"sum_repeats", rows, n}, stream, rows * n, SumRepeats<T>{n, times, y, x});
}

/// An element and its place.
struct Largest {
  float value;
  Size place;
};

/// The larger one; of equal ones, and of two NaN, the first.
__device__ inline Largest larger_of(const Largest& a, const Largest& b) {
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
  if (a_is_nan || a.value == b.value) return a.place < b.place ? a : b;
  return a.value > b.value ? a : b;
}

template <class T>
struct MaxAlong {
  Size n, inner;
  T* y;
  std::int32_t* place;
  const T* x;
  __device__ void operator()(Size i) const {
    const T* const from = x + i / inner * n * inner + i % inner;
    Largest largest{to_float(from[0]), 0};
    for (Size k = 1; k < n; ++k) largest = larger_of(largest, {to_float(from[k * inner]), k});
    y[i] = from[largest.place * inner];
    place[i] = static_cast<std::int32_t>(largest.place);
  }
};

/// A result of n elements in a row by a warp; the block has a row of threads for each.
template <class T>
__global__ void __launch_bounds__(256) max_row_kernel(MaxAlong<T> max, Size count) {
  const Size i = static_cast<Size>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (i >= count) return;  // a whole warp
  const T* const from = max.x + i * max.n;
  Largest largest{to_float(from[threadIdx.x]), static_cast<Size>(threadIdx.x)};  // n is at least a warp
  for (Size k = threadIdx.x + warp_size; k < max.n; k += warp_size)
    largest = larger_of(largest, {to_float(from[k]), k});
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    largest =
        larger_of(largest, {__shfl_xor_sync(all_lanes, largest.value, distance),
                            static_cast<Size>(__shfl_xor_sync(all_lanes, static_cast<int>(largest.place), distance))});
  if (threadIdx.x > 0) return;
  max.y[i] = from[largest.place];
  max.place[i] = static_cast<std::int32_t>(largest.place);
}

template <class T>
void max_along(cudaStream_t stream, Size outer, Size n, Size inner, T* y, std::int32_t* place, const T* x) {
  const Work work{"max_along", outer * inner, n};
  const MaxAlong<T> max{n, inner, y, place, x};
  if (inner > 1 || n < warp_size) return launch_each(work, stream, outer * inner, max);
  const Block block{warp_size, 8};
  launch(work, max_row_kernel<T>, blocks_for(outer, block.y), block, stream, max, outer);
}

template <class T>
struct MaxAlongBackward {
  Size n, inner;
  T* dx;
  const T* dy;
  const std::int32_t* place;
  __device__ void operator()(Size i) const {
    const Size result = i / (n * inner) * inner + i % inner;
    dx[i] = place[result] == i / inner % n ? dy[result] : T{};
  }
};

template <class T>
void max_along_backward(cudaStream_t stream, Size outer, Size n, Size inner, T* dx, const T* dy,
                        const std::int32_t* place) {
  launch_each(Work{"max_along_backward", outer * inner, n}, stream, outer * n * inner,
              MaxAlongBackward<T>{n, inner, dx, dy, place});
}

}  // namespace dspp::gpu
