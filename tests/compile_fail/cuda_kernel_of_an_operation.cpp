// SPDX-License-Identifier: Apache-2.0
// expected-error {{dspp: Cuda needs a kernel for each operation, but has none for this one. Use another}}
// expected-error {{(docs/cuda.md lists them), or Cpu.}}
#include <dspp/cuda.hpp>

#ifdef DSPP_TWIN
using Name = dspp::kernels::Softmax<float>;
#else
using Name = dspp::kernels::Normalize<float>;
#endif

dspp::Kernel<Name, dspp::Cuda> kernel;
