// SPDX-License-Identifier: Apache-2.0
/// Functors on elements of two arrays of which each may repeat elements, with two results, or of a number in memory.
///
///   pointwise_broadcast   z[i, ...] = f(x[i, ...], y[i, ...])       strides of 0 where an operand repeats
///   pointwise_vjp_of_two  f(a[i], b[i], dy[i], da[i], db[i])
///   scale_by              y[i] = factor *by x[i]                    the first product in f64
///   broadcast             y[i] = *value / divisor
#pragma once

#include <dspp/ops/kernels.hpp>
#include <kernels/sum_along.cuh>

namespace dspp::gpu {

template <class F, class T>
struct PointwiseBroadcast {
  F f;
  kernels::Repeats at;
  T* z;
  const T *x, *y;
  __device__ void operator()(Size i) const {
    z[i] = from_float<T>(f(to_float(x[offset_of(i, at.dimensions, at.extents, at.x_strides)]),
                           to_float(y[offset_of(i, at.dimensions, at.extents, at.y_strides)])));
  }
};

template <class F, class T>
void pointwise_broadcast(cudaStream_t stream, F f, const kernels::Repeats& at, T* z, const T* x, const T* y) {
  Size count = 1;
  for (int d = 0; d < at.dimensions; ++d) count *= at.extents[d];
  launch_each(Work{"pointwise_broadcast", 1, count}, stream, count, PointwiseBroadcast<F, T>{f, at, z, x, y});
}

template <class F, class T>
struct PointwiseVjpOfTwo {
  F f;
  T *da, *db;
  const T *a, *b, *dy;
  __device__ void operator()(Size i) const {
    float of_a, of_b;
    f(to_float(a[i]), to_float(b[i]), to_float(dy[i]), of_a, of_b);
    da[i] = from_float<T>(of_a);
    db[i] = from_float<T>(of_b);
  }
};

/// da or db may be dy.
template <class F, class T>
void pointwise_vjp_of_two(cudaStream_t stream, F f, Size count, T* da, T* db, const T* a, const T* b, const T* dy) {
  launch_each(Work{"pointwise_vjp_of_two", 1, count}, stream, count, PointwiseVjpOfTwo<F, T>{f, da, db, a, b, dy});
}

/// Of a few numbers in f64, such as those of a step.
template <class F, class U, class T>
struct WidePointwise {
  F f;
  U* y;
  const T* x;
  __device__ void operator()(Size i) const { y[i] = static_cast<U>(f(x[i])); }
};
template <class F, class U, class T, class V>
struct WidePointwisePair {
  F f;
  U* z;
  const T* x;
  const V* y;
  __device__ void operator()(Size i) const {
    z[i] = static_cast<U>(f(static_cast<double>(x[i]), static_cast<double>(y[i])));
  }
};

template <class T>
struct ScaleBy {
  T* y;
  const T* x;
  const float* by;
  double factor;
  __device__ void operator()(Size i) const {
    y[i] = from_float<T>(static_cast<float>(factor * static_cast<double>(*by)) * to_float(x[i]));
  }
};

/// y may be x.
template <class T>
void scale_by(cudaStream_t stream, Size count, T* y, const T* x, const float* by, double factor) {
  launch_each(Work{"scale_by", 1, count}, stream, count, ScaleBy<T>{y, x, by, factor});
}

template <class T>
struct Broadcast {
  T* y;
  const float* value;
  float divisor;
  __device__ void operator()(Size i) const { y[i] = from_float<T>(*value / divisor); }
};

template <class T>
void broadcast(cudaStream_t stream, Size count, const float* value, double divisor, T* y) {
  launch_each(Work{"broadcast", 1, count}, stream, count, Broadcast<T>{y, value, static_cast<float>(divisor)});
}

template <class T>
struct Fill {
  T* y;
  T value;
  __device__ void operator()(Size i) const { y[i] = value; }
};

template <class T>
void fill(cudaStream_t stream, Size count, T* y, T value) {
  launch_each(Work{"fill", 1, count}, stream, count, Fill<T>{y, value});
}

}  // namespace dspp::gpu
