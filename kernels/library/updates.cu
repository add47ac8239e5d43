// SPDX-License-Identifier: Apache-2.0
/// dspp::cuda: the updates of dspp's optimizers.
#define DSPP_COMPILES_CUDA
#include <dspp/optim.hpp>
#include <kernels/library/instantiate.cuh>

namespace dspp {
DSPP_CUDA_UPDATE_KERNELS(DSPP_INSTANTIATE_CUDA)
}
