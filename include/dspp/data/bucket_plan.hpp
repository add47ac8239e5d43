// SPDX-License-Identifier: Apache-2.0
/// Samples of different lengths in steps of similar ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/data/batch_stream.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <dspp/base/digest.hpp>
#include <dspp/data/sample_order.hpp>
#endif

namespace dspp::data {

struct BucketSizes {
  std::vector<Size> lengths{};  ///< of the buckets, ascending; a sample is padded to the first that holds it
  Size tokens = 0;              ///< at most, in the samples of a step, their padding included
  Size accumulate = 1;
};

/// Which samples each step takes: all from one bucket, as many as the bound of tokens allows, the same for every number
/// of ranks. An epoch takes every sample once: a bucket's samples, shuffled, are divided evenly among the fewest steps
/// that the bound allows, and the steps of all buckets are shuffled. The positions of all of them are one stream.
///
/// Memory   8 bytes a sample, which copies share
class BucketPlan {
 public:
  struct Bucket {
    Size length = 0;   ///< of its rows
    Size samples = 0;  ///< of the data; may be 0
    Size steps = 0;    ///< in an epoch
    Size largest = 0;  ///< samples of its largest step
  };
  struct Step {
    std::size_t bucket = 0;
    Size samples = 0;
    Size first = 0;  ///< its position in the stream of the bucket's samples
  };

  /// Throws   Error(usage) for lengths that do not ascend, a bound of less than one row, no samples, and a sample that
  ///          no bucket holds
  BucketPlan(Size samples, FunctionRef<Size(Size sample)> length_of, const BucketSizes& sizes);

  const std::vector<Bucket>& buckets() const { return plan_->buckets; }
  const BucketSizes& sizes() const { return plan_->sizes; }
  Size samples() const { return std::ssize(plan_->order); }
  /// Steps of an epoch.
  Size steps() const { return plan_->steps; }

  /// What plan() takes for the batches of a bucket over that many data ranks: the largest of the plans, of buckets with
  /// samples, is the run's.
  BatchSizes sizes_of(const Bucket& bucket, int data_ranks) const;
  /// What Engine takes: at least the rows, and the length, of every bucket that has samples.
  BatchSizes engine_sizes(int data_ranks) const;

  Step step(std::uint64_t seed, Size number) const;
  /// The number in the source of sample `number` of a step.
  Size sample(std::uint64_t seed, const Step& step, Size number) const;
  /// The samples of the stream before a step, and the step with so many before it.
  ///
  /// Cost     a microsecond for each step since the epoch began
  /// Throws   Error(usage) if no step begins there
  Size samples_before(std::uint64_t seed, Size step) const;
  Size step_at(std::uint64_t seed, Size samples_before) const;

  /// What of it must be equal on all ranks.
  Facts facts() const;

 private:
  struct Plan {
    BucketSizes sizes;
    std::vector<Bucket> buckets{};
    std::vector<Size> order{};  // the samples by their buckets
    Size steps = 0;
  };
  void take(Size samples, FunctionRef<Size(Size sample)> length_of, Plan& plan);

  std::shared_ptr<const Plan> plan_;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
constexpr Size quotient_up(Size count, Size unit) {
  return (count + unit - 1) / unit;
}
}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE BucketPlan::BucketPlan(Size samples, FunctionRef<Size(Size sample)> length_of, const BucketSizes& sizes) {
  const std::vector<Size>& lengths = sizes.lengths;
  const bool ascend = std::adjacent_find(lengths.begin(), lengths.end(), std::greater_equal<>()) == lengths.end();
  require(!lengths.empty() && lengths[0] >= 1 && ascend,
          "dspp: buckets need lengths of at least 1 that ascend, but got others. Sort BucketSizes::lengths.");
  require(sizes.accumulate >= 1, "dspp: buckets need accumulate of at least 1, but it is less. Raise accumulate.");
  require(sizes.tokens >= lengths.back(),
          "dspp: buckets need a bound of tokens that a sample of the longest fits in, but it is less. Raise "
          "BucketSizes::tokens.",
          ErrorCode::usage, {{"tokens", sizes.tokens}, {"longest", lengths.back()}});
  require(samples >= 1, "dspp: batches need a source with at least one sample, but its size is less. Give it samples.",
          ErrorCode::usage, {{"size", samples}});
  auto plan = std::make_shared<Plan>(Plan{.sizes = sizes});
  take(samples, length_of, *plan);
  plan_ = std::move(plan);
}

DSPP_INLINE void BucketPlan::take(Size samples, FunctionRef<Size(Size sample)> length_of, Plan& plan) {
  const std::vector<Size>& lengths = plan.sizes.lengths;
  std::vector<std::vector<Size>> members(lengths.size());
  for (Size sample = 0; sample < samples; ++sample) {
    const Size length = length_of(sample);
    if (length < 1 || length > lengths.back())
      fail(ErrorCode::usage, "dspp: buckets need samples of 1 to " + std::to_string(lengths.back()) +
                                 " tokens, but sample " + std::to_string(sample) + " has " + std::to_string(length) +
                                 ". Leave it out, cut it, or add a longer bucket.");
    members[static_cast<std::size_t>(std::lower_bound(lengths.begin(), lengths.end(), length) - lengths.begin())]
        .push_back(sample);
  }
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    Bucket bucket{.length = lengths[b], .samples = std::ssize(members[b])};
    bucket.steps = detail::quotient_up(bucket.samples, plan.sizes.tokens / bucket.length);
    if (bucket.steps > 0) bucket.largest = detail::quotient_up(bucket.samples, bucket.steps);
    plan.steps += bucket.steps;
    plan.buckets.push_back(bucket);
    plan.order.insert(plan.order.end(), members[b].begin(), members[b].end());
  }
}

DSPP_INLINE BatchSizes BucketPlan::sizes_of(const Bucket& bucket, int data_ranks) const {
  return {.micro_batch = std::max<Size>(1, detail::quotient_up(bucket.largest, data_ranks * sizes().accumulate)),
          .sequence = bucket.length,
          .accumulate = sizes().accumulate};
}

DSPP_INLINE BatchSizes BucketPlan::engine_sizes(int data_ranks) const {
  BatchSizes most{.accumulate = sizes().accumulate};
  for (const Bucket& bucket : buckets()) {
    if (bucket.samples == 0) continue;
    most.micro_batch = std::max(most.micro_batch, sizes_of(bucket, data_ranks).micro_batch);
    most.sequence = std::max(most.sequence, bucket.length);
  }
  return most;
}

DSPP_INLINE BucketPlan::Step BucketPlan::step(std::uint64_t seed, Size number) const {
  const Size epoch = number / steps();
  Size piece = sample_at(seed, number, steps());
  std::size_t b = 0;
  for (; piece >= buckets()[b].steps; ++b) piece -= buckets()[b].steps;
  const Bucket& bucket = buckets()[b];
  // piece samples / steps, whose product might not fit
  const auto begin = [&](Size i) {
    return i * (bucket.samples / bucket.steps) + i * (bucket.samples % bucket.steps) / bucket.steps;
  };
  return {b, begin(piece + 1) - begin(piece), epoch * bucket.samples + begin(piece)};
}

DSPP_INLINE Size BucketPlan::sample(std::uint64_t seed, const Step& step, Size number) const {
  Size begin = 0;
  for (std::size_t b = 0; b < step.bucket; ++b) begin += buckets()[b].samples;
  const std::uint64_t own = seed_of_stream(seed, step.bucket + 1);  // stream 0 is that of the steps
  const Size place = sample_at(own, step.first + number, buckets()[step.bucket].samples);
  return plan_->order[static_cast<std::size_t>(begin + place)];
}

DSPP_INLINE Size BucketPlan::samples_before(std::uint64_t seed, Size step) const {
  Size before = step / steps() * samples();
  for (Size i = step / steps() * steps(); i < step; ++i) before += this->step(seed, i).samples;
  return before;
}

DSPP_INLINE Size BucketPlan::step_at(std::uint64_t seed, Size samples_before) const {
  Size number = samples_before / samples() * steps(), rest = samples_before % samples();
  while (rest > 0) rest -= step(seed, number++).samples;
  if (rest < 0)
    fail(ErrorCode::usage, "dspp: batches in buckets need a first_sample at which a step begins, but none begins at " +
                               std::to_string(samples_before) +
                               ". Take it from next_sample, and keep the buckets and the seed.");
  return number;
}

DSPP_INLINE Facts BucketPlan::facts() const {
  Digest order;
  for (const Size sample : plan_->order) order.add(static_cast<std::uint64_t>(sample));
  Facts facts;
  facts.add("tokens of a step", sizes().tokens).add("samples", samples());
  for (const Bucket& bucket : buckets())
    facts.add("samples in the bucket of length " + std::to_string(bucket.length), bucket.samples);
  return facts.add("digest of the buckets", digest_text(order.value()));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
