// SPDX-License-Identifier: Apache-2.0
/// Copies of boxes of elements, as slices, joins and transposes of dimensions need them.
///
///   copy_runs     y[i y_stride + j] = x[i x_stride + j]                    j < run, i < outer
///   copy_mapped   bytes to mapped memory of the host, from the same or from the device's: between two places of the
///                 host's memory cudaMemcpyAsync lets the host wait for the stream
///   copy_strided  y, dense, from x at other strides
///   exchange      of x and y
///   rotate        the last `by` bytes come to the front, in place
///
/// Bytes     2 sizeof(T) an element; rotate four a byte
#pragma once

#include <cstdint>
#include <utility>

#include <dspp/ops/kernels.hpp>
#include <kernels/each.cuh>

namespace dspp::gpu {

template <class T>
struct CopyRuns {
  Size run, y_stride, x_stride;
  T* y;
  const T* x;
  __device__ void operator()(Size i) const { y[i / run * y_stride + i % run] = x[i / run * x_stride + i % run]; }
};

template <class T>
void copy_runs(cudaStream_t stream, Size outer, Size run, T* y, Size y_stride, const T* x, Size x_stride) {
  launch_each(Work{"copy_runs", outer, run}, stream, outer * run, CopyRuns<T>{run, y_stride, x_stride, y, x});
}

inline void copy_mapped(cudaStream_t stream, void* to, const void* from, Size bytes) {
  using Word = std::uint64_t;
  constexpr Size width = sizeof(Word);
  const bool in_words = bytes % width == 0 && (reinterpret_cast<std::uintptr_t>(to) % width) == 0 &&
                        (reinterpret_cast<std::uintptr_t>(from) % width) == 0;
  const auto copy = [&]<class T>(T, Size count) {
    copy_runs<T>(stream, 1, count, static_cast<T*>(to), 0, static_cast<const T*>(from), 0);
  };
  in_words ? copy(Word{}, bytes / width) : copy(std::uint8_t{}, bytes);
}

template <class T>
struct ZeroRuns {
  Size run, y_stride;
  T* y;
  __device__ void operator()(Size i) const { y[i / run * y_stride + i % run] = T{}; }
};

template <class T>
void zero_runs(cudaStream_t stream, Size outer, Size run, T* y, Size y_stride) {
  launch_each(Work{"zero_runs", outer, run}, stream, outer * run, ZeroRuns<T>{run, y_stride, y});
}

template <class T>
struct CopyStrided {
  kernels::Strides at;
  T* y;
  const T* x;
  __device__ void operator()(Size i) const {
    Size from = 0, rest = i;
    for (int d = at.dimensions - 1; d >= 0; --d) {
      from += rest % at.extents[d] * at.strides[d];
      rest /= at.extents[d];
    }
    y[i] = x[from];
  }
};

template <class T>
void copy_strided(cudaStream_t stream, const kernels::Strides& at, T* y, const T* x) {
  Size count = 1;
  for (int d = 0; d < at.dimensions; ++d) count *= at.extents[d];
  launch_each(Work{"copy_strided", 1, count}, stream, count, CopyStrided<T>{at, y, x});
}

template <class T>
struct Exchange {
  T *x, *y;
  __device__ void operator()(Size i) const {
    const T first = x[i];
    x[i] = y[i];
    y[i] = first;
  }
};

/// x and y do not overlap.
template <class T>
void exchange(cudaStream_t stream, Size count, T* x, T* y) {
  launch_each(Work{"exchange", 1, count}, stream, count, Exchange<T>{x, y});
}

struct Reverse {
  Size last;
  std::uint8_t* x;
  __device__ void operator()(Size i) const {
    const std::uint8_t first = x[i];
    x[i] = x[last - i];
    x[last - i] = first;
  }
};

inline void rotate(cudaStream_t stream, Size bytes, Size by, std::uint8_t* x) {
  const Work work{"rotate", by, bytes};
  const auto reverse = [&](std::uint8_t* part, Size count) {
    launch_each(work, stream, count / 2, Reverse{count - 1, part});
  };
  reverse(x, bytes);
  reverse(x, by);
  reverse(x + by, bytes - by);
}

}  // namespace dspp::gpu
