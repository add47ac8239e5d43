// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the kernels of the Cpu for f32.
#define DSPP_COMPILES_KERNELS
#include <dspp/compiled/kernels.hpp>

namespace dspp {
DSPP_KERNELS_OF(float)
DSPP_KERNELS_WITH_GRADIENTS(float, float)
DSPP_KERNELS_OF_SUMS(float)
template struct Kernel<kernels::AllFinite<std::int32_t>, Cpu>;
template struct Kernel<kernels::CopyRuns<std::int32_t>, Cpu>;
template struct Kernel<kernels::CopyStrided<std::int32_t>, Cpu>;
template struct Kernel<kernels::ZeroRuns<std::int32_t>, Cpu>;
}  // namespace dspp
