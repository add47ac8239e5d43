// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the kernels of the Cpu for f16.
#define DSPP_COMPILES_KERNELS
#include <dspp/compiled/kernels.hpp>

namespace dspp {
DSPP_KERNELS_OF(f16)
DSPP_POINTWISE_KERNELS(template, f16)
DSPP_WIDE_POINTWISE_KERNELS(template, f16)
DSPP_KERNELS_WITH_GRADIENTS(f16, f16)
DSPP_KERNELS_WITH_GRADIENTS(f16, float)
template struct Kernel<kernels::SquaredNorm<f16, float>, Cpu>;
}  // namespace dspp
