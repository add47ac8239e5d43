// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the kernels of the Cpu for f64.
#define DSPP_COMPILES_KERNELS
#include <dspp/compiled/kernels.hpp>

namespace dspp {
DSPP_KERNELS_OF(double)
DSPP_POINTWISE_KERNELS(template, double)
DSPP_KERNELS_WITH_GRADIENTS(double, double)
DSPP_KERNELS_OF_SUMS(double)
}  // namespace dspp
