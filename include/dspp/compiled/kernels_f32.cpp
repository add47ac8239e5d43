// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the kernels of the Cpu for f32, and for integers.
#define DSPP_COMPILES_KERNELS
#include <dspp/compiled/kernels.hpp>

namespace dspp {
DSPP_KERNELS_OF(float)
DSPP_POINTWISE_KERNELS(template, float)
DSPP_KERNELS_WITH_GRADIENTS(float, float)
DSPP_KERNELS_OF_SUMS(float)
DSPP_KERNELS_OF_INTEGERS(std::int32_t)
DSPP_KERNELS_OF_INTEGERS(std::int64_t)
DSPP_KERNELS_OF_INTEGERS(std::uint8_t)
DSPP_SUMS_OF(std::int32_t)
DSPP_SUMS_OF(std::int64_t)
template struct Kernel<kernels::SquaredNorm<float, float>, Cpu>;
}  // namespace dspp
