// SPDX-License-Identifier: Apache-2.0
/// Checks of values in the device's memory: the first that is wrong is noted, and the host throws when it next waits.
///
/// Bytes     4 a value
#pragma once

#include <dspp/cuda/memory.hpp>
#include <dspp/ops/kernels.hpp>
#include <kernels/each.cuh>
#include <kernels/reduce.cuh>

namespace dspp::gpu {

struct Smaller {
  __device__ Size operator()(Size a, Size b) const { return a < b ? a : b; }
};

/// Notes the first i < count with is_wrong(i), unless an earlier check has noted one.
template <int Threads, class Wrong>
__global__ void __launch_bounds__(Threads)
    note_first_kernel(Size count, Wrong is_wrong, std::int32_t check, CudaFault* fault) {
  Size first = count;
  for (Size i = threadIdx.x; i < count && first == count; i += Threads)
    if (is_wrong(i)) first = i;
  first = reduce_block(first, Smaller{}, count);
  if (threadIdx.x > 0 || first == count || fault->check != 0) return;
  *fault = {check, first, is_wrong.value(first), 0};
}

template <class Wrong>
void note_first(const char* operation, cudaStream_t stream, Size count, const Wrong& is_wrong, std::int32_t check,
                CudaFault* fault) {
  launch(Work{operation, 1, count}, note_first_kernel<1024, Wrong>, Size{1}, {1024}, stream, count, is_wrong, check,
         fault);
}

struct WrongId {
  const std::int32_t* ids;
  Size vocabulary;
  bool ignored;
  __device__ bool operator()(Size i) const {
    return (ids[i] < 0 || ids[i] >= vocabulary) && !(ignored && ids[i] == ignored_target);
  }
  __device__ double value(Size i) const { return ids[i]; }
};

struct WrongWeight {
  const float* weights;
  __device__ bool operator()(Size i) const { return !(weights[i] >= 0 && weights[i] - weights[i] == 0); }
  __device__ double value(Size i) const { return static_cast<double>(weights[i]); }
};

struct WrongLength {
  const std::int32_t* lengths;
  Size sequence;
  __device__ bool operator()(Size i) const { return lengths[i] < 0 || lengths[i] > sequence; }
  __device__ double value(Size i) const { return lengths[i]; }
};

/// A step with a wrong value updates nothing: the host throws when it reads the report.
struct SkipIfFault {
  const CudaFault* fault;
  double* scalars;
  __device__ void operator()() const {
    if (fault->check != 0) scalars[StepScalars::verdict] = static_cast<double>(StepVerdict::no_targets);
  }
};

/// Notes two numbers, unless an earlier check has noted something.
__device__ inline void note(CudaFault* fault, std::int32_t check, double a, double b) {
  if (fault->check == 0) *fault = {check, 0, a, b};
}

}  // namespace dspp::gpu
