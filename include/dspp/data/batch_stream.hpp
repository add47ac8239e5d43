// SPDX-License-Identifier: Apache-2.0
/// The positions of a rank's batches in one endless stream of samples.
#pragma once

#include <cstdint>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/batch_sizes.hpp>

namespace dspp::data {

/// This rank's position along the data axis.
struct DataShare {
  int rank = 0;
  int ranks = 1;
};

/// Which batches a training run takes, besides their sizes.
struct BatchConfig {
  Size steps = 1;
  std::uint64_t seed = 1;
  Size first_step = 0;    ///< of a resumed run, in steps
  Size first_sample = 0;  ///< or in samples, of all ranks and micro-steps: next_sample of the run before
  Size prefetch = 0;      ///< batches that a thread of each rank prepares while the last one is in use (HostBatches)
  /// Of a resumed run: the data_digest of the run before. Other data, or another order, are refused; 0: not asked.
  std::uint64_t data_digest = 0;
};

/// A step's global batch takes the next micro_batch x accumulate x data ranks samples of the stream; sample
/// g = (micro_step ranks + rank) micro_batch + row of it is row `row` of one rank's batch. So the stream does not
/// depend on the number of ranks or the global batch.
struct BatchStream {
  BatchSizes sizes{};
  BatchConfig config{};
  DataShare share{};

  Size global_batch() const { return sizes.micro_batch * sizes.accumulate * share.ranks; }
  Size batches() const { return config.steps * sizes.accumulate; }
  /// The first_sample of a run that resumes after `steps` of these.
  Size next_sample(Size steps) const { return config.first_sample + (config.first_step + steps) * global_batch(); }
  /// The number in its step's global batch of the first row of batch `number`.
  Size number_in_step(Size number) const {
    return (number % sizes.accumulate * share.ranks + share.rank) * sizes.micro_batch;
  }
  /// The position in the stream of the first row of batch `number`.
  Size position(Size number) const { return next_sample(number / sizes.accumulate) + number_in_step(number); }

  /// What of it must be equal on all ranks.
  Facts facts() const {
    return Facts()
        .add("micro_batch", sizes.micro_batch)
        .add("sequence", sizes.sequence)
        .add("steps", config.steps)
        .add("accumulate", sizes.accumulate)
        .add("seed", config.seed)
        .add("first_step", config.first_step)
        .add("first_sample", config.first_sample)
        .add("data_digest", digest_text(config.data_digest));
  }
};

namespace detail {

/// Throws   Error(usage) unless the data of a run that resumes have the digest of those before
void check_same_digest(std::uint64_t before, std::uint64_t now);

/// Throws   Error(usage) if the run that resumes had other data than those of `range`
template <class Range>
void check_resumed(const BatchConfig& config, const Range& range) {
  if (config.data_digest != 0) check_same_digest(config.data_digest, range.data_digest());
}

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::check_same_digest(std::uint64_t before, std::uint64_t now) {
  if (before != now)
    fail(ErrorCode::usage,
         "dspp: batches() needs the data of the run that it resumes, of digest " + digest_text(before) +
             ", but these, or their order, have " + digest_text(now) +
             ". Give the same samples, weights, buckets, split of a text and seed; data_digest = 0 takes others.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
