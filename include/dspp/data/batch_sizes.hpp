// SPDX-License-Identifier: Apache-2.0
/// The extents of a training's batches, said once: plan, Engine, batches and evaluate take one struct.
#pragma once

#include <dspp/base/types.hpp>

namespace dspp {

/// What one rank computes on in a step. The global batch is micro_batch x accumulate x data ranks sequences.
///
/// Example  constexpr BatchSizes sizes{.micro_batch = 8, .sequence = 256, .accumulate = 4};
struct BatchSizes {
  Size micro_batch = 1;  ///< sequences of a micro-step of one data rank
  Size sequence = 0;     ///< tokens of a sequence, which Cp<n> cuts; 0: not said
  Size accumulate = 1;   ///< micro-steps of a step
};

}  // namespace dspp
