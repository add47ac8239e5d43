// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the updates of dspp's optimizers on the Cpu.
#define DSPP_COMPILES_KERNELS
#include <dspp/optim.hpp>

namespace dspp {
DSPP_UPDATE_KERNELS(template, Adagrad)
DSPP_UPDATE_KERNELS(template, AdamW)
DSPP_UPDATE_KERNELS(template, GradientSum)
DSPP_UPDATE_KERNELS(template, Lion)
DSPP_UPDATE_KERNELS(template, Sgd)
DSPP_UPDATE_KERNELS(template, MomentumSgd)
DSPP_UPDATE_KERNELS(template, Muon)
}  // namespace dspp
