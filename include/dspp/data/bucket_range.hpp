// SPDX-License-Identifier: Apache-2.0
/// The samples of each of a rank's batches, in buckets by their length.
#pragma once

#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/data/batch_stream.hpp>
#include <dspp/data/batches.hpp>
#include <dspp/data/bucket_plan.hpp>
#include <dspp/data/sample_range.hpp>

namespace dspp::data {

/// Batches of the steps of a BucketPlan. The accumulate x ranks batches of a step are its samples divided evenly, in
/// order; all have the same number of rows, so that some end with one of padding, or are one of padding.
class BucketRange {
 public:
  /// `rows` has the batches of each bucket.
  ///
  /// Throws   Error(usage) for numbers below 0, and a first_sample at which no step begins; Error(placement) for fields
  ///          that cannot be cut
  BucketRange(std::vector<SampleRows> rows, SampleRange::Source source, BucketPlan plan, const BatchConfig& config,
              DataShare share);

  Size size() const { return config_.steps * plan_.sizes().accumulate; }
  Size next_sample(Size steps) const { return plan_.samples_before(config_.seed, config_.first_step + steps); }
  /// Writes this rank's part of batch `number`.
  void fill(Size number, HostBatch& batch) const;
  /// The facts that must be equal on all ranks.
  Facts facts() const;
  /// Of the data, their buckets and their order: equal for runs that may resume each other.
  std::uint64_t data_digest() const { return of_data().add("seed", config_.seed).digest(); }

 private:
  Facts of_data() const;

  std::vector<SampleRows> rows_;
  SampleRange::Source source_;
  BucketPlan plan_;
  BatchConfig config_;
  DataShare share_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE BucketRange::BucketRange(std::vector<SampleRows> rows, SampleRange::Source source, BucketPlan plan,
                                     const BatchConfig& config, DataShare share)
    : rows_(std::move(rows)), source_(std::move(source)), plan_(std::move(plan)), config_(config), share_(share) {
  detail::check_training({.sequence = 1, .accumulate = plan_.sizes().accumulate}, config, share);
  require(plan_.samples() == source_.samples,
          "dspp: batches in buckets need the plan of their own source, but its samples are another number. Make it by "
          "bucket_plan(source, sizes).",
          ErrorCode::usage, {{"samples of the plan", plan_.samples()}, {"of the source", source_.samples}});
  for (const SampleRows& bucket : rows_) check_cut(bucket.fields);
  Size samples = 0;  // an epoch more than the last step's
  const bool too_far =
      __builtin_mul_overflow((config.first_step + config.steps) / plan_.steps() + 1, plan_.samples(), &samples) ||
      __builtin_add_overflow(samples, config.first_sample, &samples);
  require(!too_far,
          "dspp: batches need samples that 63 bits count, but the last ones are beyond. Lower first_step or steps.",
          ErrorCode::usage, {{"first_step", config.first_step}, {"first_sample", config.first_sample}});
  config_.first_step += plan_.step_at(config.seed, std::exchange(config_.first_sample, 0));
}

DSPP_INLINE void BucketRange::fill(Size number, HostBatch& batch) const {
  const Size accumulate = plan_.sizes().accumulate, parts = accumulate * share_.ranks;
  const Size part = number % accumulate * share_.ranks + share_.rank;
  const auto step = plan_.step(config_.seed, config_.first_step + number / accumulate);
  const Size begin = part * step.samples / parts, end = (part + 1) * step.samples / parts;
  batch.first_sample = begin;
  const auto sample = [&](Size row) {
    return begin + row < end ? plan_.sample(config_.seed, step, begin + row) : SampleRows::no_sample;
  };
  rows_[step.bucket].write(sample, batch);
}

DSPP_INLINE Facts BucketRange::facts() const {
  return of_data()
      .add("accumulate", plan_.sizes().accumulate)
      .add("steps", config_.steps)
      .add("seed", config_.seed)
      .add("first_step", config_.first_step)
      .add("data_digest", digest_text(config_.data_digest));
}

DSPP_INLINE Facts BucketRange::of_data() const {
  Facts facts = plan_.facts();
  for (const HostField& field : rows_.back().fields)
    facts.add("bytes of a sample's '" + field.name + "'", field.whole_bytes());
  return facts.add("digest of the data", digest_text(source_.fingerprint_or_digest(rows_.back())));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
