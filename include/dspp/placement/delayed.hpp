// SPDX-License-Identifier: Apache-2.0
/// When a step's update is done: Delayed<1>.
#pragma once

#include <dspp/base/types.hpp>

namespace dspp {

/// A member of a policy, Delayed<1>: the update of a step runs beside forward and backward of the next one, which
/// compute with the parameters that it began with, and counts from the end of that step on. The first
/// EngineConfig::delay_after updates are not delayed.
///
/// What reads, writes or saves the engine's parameters or state ends the update first: it sees all of it, and so does
/// the next forward, so that a training that goes on from a checkpoint has the bits of the one that saved it. Weights,
/// evaluation and generation take the parameters of the next forward.
///
/// Memory   between steps a rank's slice of the gradients, and of the values once more
/// Source   Ren et al. 2021, arXiv:2101.06840, section 5.2 (one-step delayed parameter update)
template <int Steps>
struct Delayed {};

/// In place of a number of updates that are not delayed: none is.
inline constexpr Size never_delayed = -1;

}  // namespace dspp
