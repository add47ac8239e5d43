// SPDX-License-Identifier: Apache-2.0
/// The extents of a run's batches: plan, Engine, batches and evaluate share one struct.
#pragma once

#include <dspp/base/types.hpp>

namespace dspp {

/// The batch extents of one rank. The global batch is micro_batch x accumulate x data ranks sequences.
///
/// Example  constexpr BatchSizes sizes{.micro_batch = 8, .sequence = 256, .accumulate = 4};
struct BatchSizes {
  Size micro_batch = 1;  ///< sequences per micro-step of one data rank
  Size sequence = 0;     ///< tokens per sequence, before Cp<n> cuts it; 0: unspecified
  Size accumulate = 1;   ///< gradient accumulation: micro-steps per step
};

}  // namespace dspp
