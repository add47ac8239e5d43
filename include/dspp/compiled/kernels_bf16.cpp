// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the kernels of the Cpu for bf16.
#define DSPP_COMPILES_KERNELS
#include <dspp/compiled/kernels.hpp>

namespace dspp {
DSPP_KERNELS_OF(bf16)
DSPP_POINTWISE_KERNELS(template, bf16)
DSPP_WIDE_POINTWISE_KERNELS(template, bf16)
DSPP_KERNELS_WITH_GRADIENTS(bf16, bf16)
DSPP_KERNELS_WITH_GRADIENTS(bf16, float)
template struct Kernel<kernels::SquaredNorm<bf16, float>, Cpu>;
}  // namespace dspp
