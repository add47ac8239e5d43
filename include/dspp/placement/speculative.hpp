// SPDX-License-Identifier: Apache-2.0
/// When a step's update begins: Speculative.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// A member of a policy: in the last backward of a step the update of a bucket begins as soon as its gradient is
/// reduced, beside the rest of backward, as if the step will neither clip nor be skipped. It counts once the step knows
/// that; else it is dropped, and the step updates as without. The bits are those of a policy without.
///
/// A step whose last one clipped or was skipped begins none ahead, nor does one that checks the ranks. What reads or
/// sets state or parameters between backward and step drops what was begun. Parameters whose gradients are complete
/// only in the step, norms and biases under Tp, are updated there.
///
/// Memory   a rank's slice of the values and of the optimizer's state once more
/// Cost     on Cuda the host waits in the step for its gradient's norm
/// Source   Lian et al. 2025, arXiv:2509.21271 (speculation-then-validation), whose roll-back is exact here
struct Speculative {};

}  // namespace dspp
