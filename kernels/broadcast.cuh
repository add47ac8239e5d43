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

/// True for the types that packs hold: f32, bf16, f16.
template <class... T>
inline constexpr bool are_floats = ((std::is_same_v<T, float> || std::is_same_v<T, bf16> ||
                                     std::is_same_v<T, f16>)&&...);

/// An element of any type as a C, and the other way.
template <class C, class T>
__device__ inline C any_to(T x) {
  if constexpr (are_floats<T>)
    return static_cast<C>(to_float(x));
  else
    return static_cast<C>(x);
}
template <class T, class C>
__device__ inline T any_from(C x) {
  if constexpr (are_floats<T>)
    return from_float<T>(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

/// Of integers, and of a few numbers in f64, such as those of a step: computed in Compute<T>, or Compute<U>.
template <class F, class U, class T>
struct AnyPointwise {
  F f;
  U* y;
  const T* x;
  __device__ void operator()(Size i) const { y[i] = any_from<U>(f(any_to<Compute<T>>(x[i]))); }
};
template <class F, class U, class T, class V>
struct AnyPointwisePair {
  F f;
  U* z;
  const T* x;
  const V* y;
  __device__ void operator()(Size i) const {
    z[i] = any_from<U>(f(any_to<Compute<U>>(x[i]), any_to<Compute<U>>(y[i])));
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
