// SPDX-License-Identifier: Apache-2.0
// expected-error {{dspp: Cuda needs a kernel for each operation, but has none for this one, nor for f64. Use}}
// expected-error {{or F16, another operation, or Cpu.}}
#include <dspp/cuda.hpp>

#ifdef DSPP_TWIN
using Name = dspp::kernels::CountTargets<float>;
#else
using Name = dspp::kernels::CountTargets<double>;
#endif

dspp::Kernel<Name, dspp::Cuda> kernel;
