// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the operations of the Cpu for f64.
#include <dspp/compiled/operations.hpp>

namespace dspp {
DSPP_OPERATIONS(template, double)
}  // namespace dspp
