// SPDX-License-Identifier: Apache-2.0
/// Checks, in every step, that the reduced gradients that one replica alone holds are those that were summed.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <dspp/engine/rank_check.hpp>

namespace dspp {

/// Called on every rank where the norm is not finite.
///
/// Cost     gathers 8 bytes per rank
/// Throws   Error(state), the same on every rank, if a rank noted a change: with the rank and the parameters
template <class Engine>
void require_unchanged_gradients(Engine& engine, RankCheck<typename Engine::D>& check) {
  if (!engine.replicas().checks_reductions()) return;
  bool changed = false;
  for (const std::uint64_t of_bucket : engine.replicas().prints().of_buckets(ReductionPrint::changed))
    changed |= of_bucket != 0;
  auto& ranks = engine.world().host();
  const auto of_ranks = detail::gather_numbers(ranks, {changed ? 1.0 : 0.0});
  std::vector<std::int64_t> words(of_ranks.size() * static_cast<std::size_t>(detail::check_words));
  for (std::size_t r = 0; r < of_ranks.size(); ++r)
    words[r * static_cast<std::size_t>(detail::check_words) + static_cast<std::size_t>(detail::CheckWord::changed)] =
        of_ranks[r] > 0;
  detail::with_checked_rank(engine, check, std::numeric_limits<double>::quiet_NaN(),
                            [&](auto rank) { rank.require_unchanged(words.data()); });
}

}  // namespace dspp
