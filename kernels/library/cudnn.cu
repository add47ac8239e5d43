// SPDX-License-Identifier: Apache-2.0
/// dspp::cuda: attention by cuDNN, where it is compiled in.
#define DSPP_COMPILES_CUDA
#define DSPP_COMPILES_CUDA_ENTRIES
#include <kernels/cudnn_graphs.cuh>
