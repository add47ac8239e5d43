// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the parts of a training on the Cpu that depend on no model.
#include <dspp/engine/library_checks.hpp>
#include <dspp/ops/cpu/library_pointwise.hpp>

namespace dspp {
DSPP_CHECKS(template)
DSPP_CHECKS_OF(template, double)
DSPP_CHECKS_OF(template, float)
DSPP_CHECKS_OF(template, bf16)
DSPP_CHECKS_OF(template, f16)
DSPP_UNITS_OF(template, double)
DSPP_UNITS_OF(template, float)
DSPP_UNITS_OF(template, bf16)
DSPP_UNITS_OF(template, f16)
}  // namespace dspp
