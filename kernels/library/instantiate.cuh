// SPDX-License-Identifier: Apache-2.0
/// What the units of dspp::cuda share.
#pragma once

#include <dspp/ops/update_matrices.hpp>
#include <kernels/cuda_kernels.cuh>

#define DSPP_INSTANTIATE_CUDA(...) template struct Kernel<__VA_ARGS__, Cuda>;
