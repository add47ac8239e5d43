// SPDX-License-Identifier: Apache-2.0
/// How an operation writes into memory that its caller owns.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// Parameter gradients go straight into the engine's flat buffers: the first use overwrites, later ones accumulate.
enum class Write { overwrite, accumulate };

namespace ops {
using dspp::Write;
}

}  // namespace dspp
