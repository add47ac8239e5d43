// SPDX-License-Identifier: Apache-2.0
/// What a rank keeps of NVIDIA's libraries: cuBLASLt, and cuDNN where it is compiled in.
#pragma once

#include <memory>

#include <dspp/cuda/memory.hpp>
#include <kernels/blas.cuh>
#include <kernels/cudnn_attention.cuh>

namespace dspp::gpu {

struct Libraries {
  explicit Libraries(CudaMemory& on) : blas([&on] { on.synchronize(); }) {}

  Blas blas;
#if DSPP_HAS_CUDNN()
  CudnnAttention attention;
#endif
};
inline Libraries& libraries_of(CudaMemory& on) {
  if (!on.library()) on.library() = std::make_shared<Libraries>(on);
  return *static_cast<Libraries*>(on.library().get());
}
inline Blas& blas_of(CudaMemory& on) {
  return libraries_of(on).blas;
}

}  // namespace dspp::gpu
