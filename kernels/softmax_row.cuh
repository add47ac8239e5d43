// SPDX-License-Identifier: Apache-2.0
/// The two numbers of a row of which softmax is made, in one pass: its maximum m, and the sum of exp(x - m).
#pragma once

#include <kernels/reduce.cuh>
#include <kernels/row_packs.cuh>

namespace dspp::gpu {

inline constexpr float minus_infinity = -__builtin_huge_valf(), not_a_number = __builtin_nanf("");

/// 2^x in one instruction: relative error 2^-22, subnormal results are 0.
__device__ inline float exp2_approximate(float x) {
#if DSPP_HAS_NVCC()
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// exp, at most 2 ulp for f32; for 16-bit elements with an error of some |x| 2^-24, far below their rounding.
template <class T>
__device__ inline float row_exp(float x) {
  if constexpr (sizeof(T) == 2)
    return exp2_approximate(x * 1.44269504f);
  else
    return expf(x);
}

/// exp(x - shift), as row_exp; for 16-bit elements with one multiplication and addition, of an error of some |shift|
/// 2^-24 more.
template <class T>
class ExpFrom {
 public:
  __device__ explicit ExpFrom(float shift) : shift_(sizeof(T) == 2 ? shift * 1.44269504f : shift) {}
  __device__ float operator()(float x) const {
    if constexpr (sizeof(T) == 2)
      return exp2_approximate(fmaf(x, 1.44269504f, -shift_));
    else
      return expf(x - shift_);
  }

 private:
  float shift_;
};

/// largest, and the sum of exp(x - largest) over what was added. An infinite sum and NaN stay; minus infinity adds 0.
template <class T>
struct MaxAndSum {
  float largest = minus_infinity, sum = 0;

  /// What exponents are taken relative to: a number also of a row that is all minus infinity.
  __device__ static float shift_of(float maximum) { return maximum == minus_infinity ? 0.0f : maximum; }

  template <int V>
  __device__ void add(const float (&x)[V]) {
    float m = largest;
    for (int v = 0; v < V; ++v) m = Larger{}(m, x[v]);
    const ExpFrom<T> exp(shift_of(m));
    sum *= exp(largest);
    for (int v = 0; v < V; ++v) sum += exp(x[v]);
    largest = m;
  }

  /// Of all threads of a block of one row, on each of them. Once in a kernel: with one barrier.
  __device__ MaxAndSum of_block() const {
    __shared__ MaxAndSum of_warps[warp_size];
    return of_block(of_warps);
  }
  /// The same by way of of_warps [32] in shared memory, which no thread may still read from an earlier call.
  __device__ MaxAndSum of_block(MaxAndSum* of_warps) const {
    const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const MaxAndSum own = of_warp();
    if (lane == 0) of_warps[warp] = own;
    __syncthreads();
    return (lane < blockDim.x / warp_size ? of_warps[lane] : MaxAndSum{}).of_warp();
  }

 private:
  __device__ MaxAndSum of_warp() const {
    const float m = reduce_warp(largest, Larger{});
    return {m, reduce_warp(sum * row_exp<T>(largest - shift_of(m)), Plus{})};
  }
};

}  // namespace dspp::gpu
