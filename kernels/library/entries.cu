// SPDX-License-Identifier: Apache-2.0
/// dspp::cuda: the device's memory, the kernels that depend on no type, those of integers, and NCCL's collectives.
#define DSPP_COMPILES_CUDA
#define DSPP_COMPILES_CUDA_ENTRIES
#include <kernels/library/instantiate.cuh>

#if DSPP_HAS_NCCL()
#include <kernels/nccl.cuh>
#endif

namespace dspp {
DSPP_CUDA_INTEGER_KERNELS(DSPP_INSTANTIATE_CUDA)

template void Cuda::fill(Pool&, float*, Size, float);
template void Cuda::fill(Pool&, double*, Size, double);
template void Cuda::fill(Pool&, bf16*, Size, bf16);
template void Cuda::fill(Pool&, f16*, Size, f16);
template void Cuda::fill(Pool&, std::int32_t*, Size, std::int32_t);
template void Cuda::fill(Pool&, std::int64_t*, Size, std::int64_t);
template void Cuda::fill(Pool&, std::uint64_t*, Size, std::uint64_t);
template void Cuda::fill(Pool&, std::uint8_t*, Size, std::uint8_t);
}  // namespace dspp
