// SPDX-License-Identifier: Apache-2.0
/// The loss on held-out text, computed by all data ranks.
#pragma once

#include <algorithm>

#include <dspp/engine/batches.hpp>
#include <dspp/engine/weights.hpp>

namespace dspp {

struct Evaluation {
  double loss = 0;  ///< nats per counted token
  Size tokens = 0;  ///< counted tokens of all ranks
};

/// The mean loss over windows of a Text's validation part, or of TokenShards: the same windows for every number of
/// ranks. The windows are grouped into batches, and data rank r takes batches r, r + N, ...; a rank without a batch in
/// the last round repeats the first, whose loss is not counted. The sizes may differ from those of training.
///
/// Cost     windows / (micro_batch N) forward passes, two all-reduces of five numbers
/// Throws   Error(file) if the validation part is shorter than one window and its last target
template <HoldsWeights Holder, class Source>
Evaluation evaluate(Holder& engine, std::shared_ptr<Source> text, const BatchSizes& sizes,
                    const data::WindowConfig& config = {}, CallSite site = CallSite::here()) {
  CalledAt here(site);
  auto& world = engine.world();
  const auto source = windows(std::move(text), sizes, config);
  require_same_on_all_ranks(world.host(), "evaluate()", source.facts());
  const Size count = source.size(), ranks = world.data_size();
  const Size micro_batch = source.global_tokens() / (count * sizes.sequence);
  MeanLoss own;
  for (Size first = 0; first < count; first += ranks) {
    const Size number = first + world.data_rank();
    const auto batch = detail::filled_batch<typename Holder::D>(
        shape(micro_batch, sizes.sequence), sequence_slice(world), world.memory(),
        [&](auto* tokens, auto* targets) { source.fill(number < count ? number : 0, tokens, targets); });
    const MeanLoss loss = engine.eval_batch(batch);
    if (number >= count) continue;
    own.mean += loss.mean * loss.counted;
    own.counted += loss.counted;
  }
  if (own.counted > 0) own.mean /= own.counted;
  const double replicas = static_cast<double>(world.replicas().size());
  return {engine.all_reduce_mean(own), static_cast<Size>(engine.all_reduce_mean(own.counted) * replicas + 0.5)};
}

}  // namespace dspp
