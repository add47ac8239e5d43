// SPDX-License-Identifier: Apache-2.0
/// dspp::cuda: the kernels of values in f16.
#define DSPP_COMPILES_CUDA
#include <kernels/library/instantiate.cuh>

namespace dspp {
DSPP_CUDA_F16_KERNELS(DSPP_INSTANTIATE_CUDA)
}
