// SPDX-License-Identifier: Apache-2.0
/// The number of segments that are recomputed, found for a limit of memory by plans.
#pragma once

#include <dspp/plan/plan.hpp>

namespace dspp {

/// The least recompute_segments (models/stack.hpp), from 1 to config.layers, with which the peak of a rank's step is at
/// most `limit` bytes: the least work, since of s segments (s - 1) / s of the blocks run again.
///
///   config.recompute_segments = segments_that_fit<Gpt<Mine>>(config, sizes, 2_GiB, {.data = 8});
///
/// Cost     at most config.layers plans, each as plan() says; in a constant expression they share the compiler's limit
///          of steps (-fconstexpr-steps, -fconstexpr-ops-limit)
/// Throws   Error(usage) if none fits, with the least peak and its number of segments; in a constant expression that is
///          a compile error
template <class Model, class Optimizer = AdamW, class Config>
constexpr int segments_that_fit(Config config, const BatchSizes& sizes, Size limit, const PlanOptions& options = {},
                                Optimizer optimizer = {}) {
  static_assert(
      requires { config.recompute_segments + config.layers; },
      "dspp: segments_that_fit needs a configuration with layers and recompute_segments, but this one has not both. "
      "Add them, and give the second to the model's Stack as its segments.");
  Size least = 0;
  int least_at = 0, segments = 0;
  do {  // once at least, since plan() says what is wrong with a number of layers
    config.recompute_segments = ++segments;
    const Size peak = plan<Model, Optimizer>(config, sizes, options, optimizer).peak;
    if (peak <= limit) return segments;
    if (least_at == 0 || peak < least) least = peak, least_at = segments;
  } while (segments < config.layers);
  // clang-format off
  require(false, "dspp: segments_that_fit needs a number of segments whose step is within the limit, but the least peak is not. Lower micro_batch or sequence, or raise the ZeRO stage.",
          ErrorCode::usage, {{"limit", limit}, {"least peak", least}, {"segments", least_at}});
  // clang-format on
  return 0;
}

}  // namespace dspp
