// SPDX-License-Identifier: Apache-2.0
/// Sums over some dimensions, and the largest elements along one.
///
///   sum_along     y[kept] = sum over the others of x / divisor, in f32, rounded once
///   sum_repeats   y[i, :] = sum over k < times of x[i times + k, :]
///   max_along     y[i, j] = the largest x[i, k, j] and its first k; NaN is larger than any number
///
/// A thread has a result, and sums in runs of 64 terms, which are then summed: the error grows with 64 + terms / 64.
///
/// Bytes     sizeof(T) an element of x, where a result's terms lie far apart up to 32
#pragma once

#include <dspp/ops/kernels.hpp>
#include <kernels/each.cuh>

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

template <class T>
void sum_along(cudaStream_t stream, const kernels::SumExtents& at, double divisor, T* y, const T* x) {
  Size count = 1, terms = 1;
  for (int d = 0; d < at.kept; ++d) count *= at.kept_extents[d];
  for (int d = 0; d < at.summed; ++d) terms *= at.summed_extents[d];
  launch_each(Work{"sum_along", terms, count}, stream, count,
              SumAlong<T>{at, terms, static_cast<float>(divisor), y, x});
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

template <class T>
struct MaxAlong {
  Size n, inner;
  T* y;
  std::int32_t* place;
  const T* x;
  __device__ void operator()(Size i) const {
    const T* const from = x + i / inner * n * inner + i % inner;
    float largest = to_float(from[0]);
    Size best = 0;
    for (Size k = 1; k < n; ++k)
      if (const float a = to_float(from[k * inner]); !(a <= largest) && largest == largest) {  // a NaN stays
        largest = a;
        best = k;
      }
    y[i] = from[best * inner];
    place[i] = static_cast<std::int32_t>(best);
  }
};

template <class T>
void max_along(cudaStream_t stream, Size outer, Size n, Size inner, T* y, std::int32_t* place, const T* x) {
  launch_each(Work{"max_along", outer * inner, n}, stream, outer * inner, MaxAlong<T>{n, inner, y, place, x});
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
