// SPDX-License-Identifier: Apache-2.0
/// The numbers of a step in the device's memory: counts of targets, seeds of the backward pass, the norm and the
/// verdict. One thread each, by the Cpu's formulas; only the weights of targets are many.
#pragma once

#include <dspp/ops/cpu/counted_targets.hpp>
#include <dspp/ops/cpu/gradient_norm.hpp>
#include <dspp/ops/cpu/step_verdict.hpp>
#include <kernels/checks.cuh>

namespace dspp::gpu {

/// Kernel<Name, Cpu>::run of these arguments, on the device.
template <class Name, class... A>
struct OnceAsCpu;
template <class Name, class A, class B>
struct OnceAsCpu<Name, A, B> {
  A a;
  B b;
  __device__ void operator()() const { Kernel<Name, Cpu>::run(a, b); }
};
template <class Name, class A, class B, class C>
struct OnceAsCpu<Name, A, B, C> {
  A a;
  B b;
  C c;
  __device__ void operator()() const { Kernel<Name, Cpu>::run(a, b, c); }
};
template <class Name, class A, class B, class C, class D, class E>
struct OnceAsCpu<Name, A, B, C, D, E> {
  A a;
  B b;
  C c;
  D d;
  E e;
  __device__ void operator()() const { Kernel<Name, Cpu>::run(a, b, c, d, e); }
};

template <class Name, class... A>
void once_as_cpu(const char* operation, cudaStream_t stream, const A&... arguments) {
  launch_once(Work{operation}, stream, OnceAsCpu<Name, A...>{arguments...});
}

/// The weights of targets that are not ignored, in f64 and in an order that depends on count alone.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    sum_target_weights_kernel(Size count, const std::int32_t* targets, const float* weights, double* counts) {
  double sum = 0, nonzero = 0;
  for (Size i = threadIdx.x; i < count; i += Threads) {
    if (targets[i] == ignored_target || weights[i] == 0) continue;
    sum += static_cast<double>(weights[i]);
    nonzero += 1;
  }
  sum = reduce_block(sum, Plus{}, 0.0);
  nonzero = reduce_block(nonzero, Plus{}, 0.0);
  if (threadIdx.x > 0) return;
  counts[TargetCounts::counted] = sum;
  counts[TargetCounts::nonzero] = nonzero;
}

inline void sum_target_weights(cudaStream_t stream, Size count, const std::int32_t* targets, const float* weights,
                               double* counts) {
  launch(Work{"sum_target_weights", 1, count}, sum_target_weights_kernel<1024>, Size{1}, {1024}, stream, count, targets,
         weights, counts);
}

/// Kernel<Name, Cpu>::holds, else noted.
template <class Name>
struct RequireNumbers {
  const double *a, *b;
  std::int32_t check;
  CudaFault* fault;
  __device__ void operator()() const {
    if (!Kernel<Name, Cpu>::holds(*a, *b)) note(fault, check, *a, *b);
  }
};

struct CountTargets {
  double all;
  const double *counted, *nonzero;
  const float* loss;
  double* counts;
  std::int32_t check;
  CudaFault* fault;
  __device__ void operator()() const {
    if (!Kernel<kernels::CountTargets<float>, Cpu>::count(all, counted, nonzero, loss, counts))
      note(fault, check, 0, 0);
  }
};

struct SeedLoss {
  kernels::SeedArguments of;
  const double* counts;
  const float* loss;
  double* sums;
  float* seed;
  std::int32_t check;
  CudaFault* fault;
  __device__ void operator()() const {
    if (!Kernel<kernels::SeedLoss<float>, Cpu>::give(of, counts, loss, sums, seed)) note(fault, check, 0, 0);
  }
};

struct NanIfAny {
  Size words, stride;
  const std::uint64_t* word;
  Size count;
  double* y;
  __device__ void operator()() const {
    bool any = false;
    for (Size k = 0; k < words; ++k) any = any || word[k * stride] != 0;
    for (Size i = 0; any && i < count; ++i) y[i] = __builtin_nan("");
  }
};

}  // namespace dspp::gpu
