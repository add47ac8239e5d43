// SPDX-License-Identifier: Apache-2.0
/// Sums, multiples and casts of arrays [count].
///
///   add    z[i] = x[i] + y[i]                  Bytes  3 sizeof(T) an element
///   scale  y[i] = factor x[i]                  Bytes  2 sizeof(T) an element
///   cast   y[i] = x[i], in another type        Bytes  sizeof(T) + sizeof(U) an element
#pragma once

#include <dspp/ops/pointwise/arithmetic.hpp>
#include <kernels/pointwise.cuh>

namespace dspp::gpu {

/// z may be x or y.
template <class T>
void add(cudaStream_t stream, Size count, T* z, const T* x, const T* y) {
  pointwise_pair(Work{"add", 1, count}, stream, dspp::pointwise::Add{}, count, z, x, y);
}

/// y may be x.
template <class T>
void scale(cudaStream_t stream, Size count, T* y, const T* x, double factor) {
  gpu::pointwise(Work{"scale", 1, count}, stream, dspp::pointwise::Scale<float>{static_cast<float>(factor)}, count, y,
                 x);
}

/// To the nearest U, ties to even; what is too large becomes infinity.
template <class U, class T>
void cast(cudaStream_t stream, Size count, U* y, const T* x) {
  gpu::pointwise(Work{"cast", 1, count}, stream, dspp::pointwise::Identity{}, count, y, x);
}

}  // namespace dspp::gpu
