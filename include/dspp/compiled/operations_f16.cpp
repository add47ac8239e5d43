// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the operations of the Cpu for f16.
#include <dspp/compiled/operations.hpp>

namespace dspp {
DSPP_OPERATIONS(template, f16)
}  // namespace dspp
