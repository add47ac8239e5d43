// SPDX-License-Identifier: Apache-2.0
/// Batches of samples of different lengths, from a source of a user's own.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <dspp/data/bucket_range.hpp>
#include <dspp/engine/source_batches.hpp>

namespace dspp {

/// The buckets of a source (data/bucket_plan.hpp), which has, beside the members of a SampleSource,
///
///   Size length(Size sample) const;                  // tokens of a sample
///   auto shapes(const BatchSizes& sizes) const;      // of a sample that is padded to sizes.sequence
///   auto padding() const;                            // such as std::tuple(0, ignored_target, 0)
///
/// A row without a sample has padding only, so the padding of targets is ignored_target, and that of lengths 0.
///
/// Cost     calls length for each sample
/// Throws   Error(usage), those of BucketPlan
/// Example  const auto buckets = bucket_plan(source, {.lengths = {64, 128, 256}, .tokens = 8192});
template <SampleSource Source>
data::BucketPlan bucket_plan(const Source& source, const data::BucketSizes& sizes);

/// Batches of the steps of a plan: each of a bucket's rows and length, so of other extents than the next, and of at
/// most those of BucketPlan::engine_sizes, which Engine takes. plan() of the sizes of each bucket gives its bytes. A
/// run that resumes at next_sample(steps), or at that step, goes on with the next step, with any number of ranks.
///
/// Note     a mean() over rows counts those of padding, of which there are more on more ranks: a loss skips them, as
///          cross_entropy does by ignored_target
///
/// Call on every rank: buckets, seed and source are compared.
///
/// Throws   as batches() of a source; Error(usage) for a first_sample at which no step begins
template <class P, class Source>
requires SampleSource<std::remove_const_t<Source>>
auto batches(World<P>& world, std::shared_ptr<Source> source, const data::BucketPlan& buckets,
             const data::BatchConfig& config = {});

template <class P, SampleSource Source>
auto batches(World<P>& world, Source source, const data::BucketPlan& buckets, const data::BatchConfig& config = {}) {
  return batches(world, std::make_shared<const Source>(std::move(source)), buckets, config);
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
[[noreturn]] void refuse_length(Size sample, Size length, Size longest);

template <class S>
constexpr bool check_source_of_lengths() {
  constexpr bool measured = requires(const S& s) {
    s.length(Size{});
  };
  static_assert(measured,
                "dspp: buckets need a source with a const member length(Size sample), the tokens of a sample, but this "
                "one has none. Write `Size length(Size sample) const`.");
  constexpr bool padded = requires(const S& s) {
    s.padding();
  };
  static_assert(padded,
                "dspp: buckets need a source with a const member padding(), what a row holds beyond its sample, but "
                "this one has none. Write `auto padding() const { return std::tuple(0, ignored_target, 0); }`.");
  constexpr bool shaped = requires(const S& s, BatchSizes sizes) {
    s.shapes(sizes);
  };
  static_assert(
      shaped,
      "dspp: buckets need a source whose member shapes takes the sizes, of which the sequence is the bucket's "
      "length, but this one takes none. Write `auto shapes(const BatchSizes& sizes) const`.");
  constexpr bool ordered = requires(const S& s) {
    s.sample_at(std::uint64_t{}, Size{});
  };
  static_assert(!ordered,
                "dspp: buckets choose the order of samples, but this source has an own one. Leave out sample_at.");
  return measured && padded && shaped && !ordered;
}
}  // namespace detail

template <SampleSource Source>
data::BucketPlan bucket_plan(const Source& source, const data::BucketSizes& sizes) {
  if constexpr (detail::check_source<Source>() && detail::check_source_of_lengths<Source>()) {
    const BatchSizes longest{.sequence = sizes.lengths.empty() ? 0 : sizes.lengths.back()};
    const auto length_of = [&](Size sample) { return static_cast<Size>(source.length(sample)); };
    return {detail::size_of_source(source, longest), length_of, sizes};
  }
}

template <class P, class Source>
requires SampleSource<std::remove_const_t<Source>>
auto batches(World<P>& world, std::shared_ptr<Source> source, const data::BucketPlan& buckets,
             const data::BatchConfig& config) {
  using S = std::remove_const_t<Source>;
  using B = typename S::template Batch<P>;
  using D = DeviceOf<P>;
  static_assert(detail::check_source<S>() && detail::check_source_of_lengths<S>());
  const std::shared_ptr<const S> owned = std::move(source);
  const data::DataShare share{world.data_rank(), world.data_size()};
  std::vector<data::SampleRows> rows;
  for (const auto& bucket : buckets.buckets()) {
    auto& own = rows.emplace_back(
        detail::rows_of_source<B>(owned, buckets.sizes_of(bucket, share.ranks), sequence_slice(world)));
    own.fill = [fill = std::move(own.fill), owned, longest = bucket.length](Size sample, std::byte* const* row) {
      const Size length = static_cast<Size>(owned->length(sample));
      if (length > longest) detail::refuse_length(sample, length, longest);
      fill(sample, row);
    };
  }
  auto samples = detail::samples_of(owned, {.sequence = buckets.sizes().lengths.back()}, config.seed);
  const data::BucketRange range(std::move(rows), std::move(samples), buckets, config, share);
  require_same_on_all_ranks(world.host(), "batches()", range.facts());
  data::detail::check_resumed(config, range);
  auto host = std::make_shared<data::HostBatches>(
      range.size(), config.prefetch, [range](Size number, data::HostBatch& batch) { range.fill(number, batch); });
  return RankBatches<B, D>(
      std::move(host), buckets.sizes().accumulate,
      {[range](Size steps) { return range.next_sample(steps); }, [range] { return range.data_digest(); }},
      world.memory());
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_length(Size sample, Size length, Size longest) {
  fail(ErrorCode::usage, "dspp: batches in buckets need the plan of their own source, but sample " +
                             std::to_string(sample) + " has " + std::to_string(length) +
                             " tokens and its bucket holds " + std::to_string(longest) +
                             ". Make it by bucket_plan(source, sizes).");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
