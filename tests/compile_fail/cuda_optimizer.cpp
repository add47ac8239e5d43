// SPDX-License-Identifier: Apache-2.0
// expected-error {{dspp: Cuda needs an optimizer whose formula kernels/ has, but got another. Use AdamW,}}
// expected-error {{Sgd or MomentumSgd, or Cpu.}}
#include <dspp/cuda.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/lion.hpp>

#ifdef DSPP_TWIN
using Optimizer = dspp::AdamW;
#else
using Optimizer = dspp::Lion;
#endif

dspp::Kernel<dspp::kernels::Update<Optimizer, float, float, float>, dspp::Cuda> kernel;
