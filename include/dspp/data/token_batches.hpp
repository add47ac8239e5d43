// SPDX-License-Identifier: Apache-2.0
/// Batches of token files: samples in epochs, and windows to evaluate on.
#pragma once

#include <memory>

#include <dspp/data/batches.hpp>
#include <dspp/data/token_shards.hpp>

namespace dspp::data {

/// The samples of token files in epochs: sample k is tokens [k sequence, (k + 1) sequence] of the concatenated files,
/// and each epoch takes every sample once, in an order of its own (sample_order.hpp). The samples are one endless
/// stream across epochs; every global batch takes the next micro_batch x accumulate x data ranks of them. The stream
/// does not depend on the number of ranks or the global batch, and a resumed run continues at first_sample.
///
/// Memory   as of a text; the files stay on disk
/// Throws   Error(file) if the files have less than one sequence and its last target; Error(usage)
BatchRange batches(std::shared_ptr<const TokenShards> shards, const BatchSizes& sizes, const BatchConfig& config = {},
                   DataShare share = {});

/// The same of token files, all of which are held out.
BatchRange windows(std::shared_ptr<const TokenShards> shards, const BatchSizes& sizes, const WindowConfig& config = {},
                   DataShare share = {});

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

inline constexpr Source shards_source{"tokens", "the files have"};

DSPP_INLINE BatchRange::Read read_tokens(std::shared_ptr<const TokenShards> shards) {
  return [owned = std::move(shards)](Size first, Size count, std::int32_t* out) { owned->read(first, count, out); };
}

}  // namespace detail

DSPP_INLINE BatchRange batches(std::shared_ptr<const TokenShards> shards, const BatchSizes& sizes,
                               const BatchConfig& config, DataShare share) {
  detail::check_training(sizes, config, share);
  detail::check_length(shards->size(), sizes.sequence, detail::shards_source);
  return {detail::read_tokens(shards),
          {.sizes = sizes,
           .config = config,
           .share = share,
           .count = config.steps * sizes.accumulate,
           .tokens = shards->size(),
           .samples = (shards->size() - 1) / sizes.sequence,
           .print = shards->fingerprint()}};
}

DSPP_INLINE BatchRange windows(std::shared_ptr<const TokenShards> shards, const BatchSizes& sizes,
                               const WindowConfig& config, DataShare share) {
  auto plan = detail::window_plan(shards->size(), sizes, config, share, detail::shards_source);
  plan.print = shards->fingerprint();
  return {detail::read_tokens(std::move(shards)), plan};
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
