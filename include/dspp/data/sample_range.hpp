// SPDX-License-Identifier: Apache-2.0
/// The samples of each of a rank's batches, from a source of a user's own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/data/batch_stream.hpp>
#include <dspp/data/batches.hpp>
#include <dspp/data/sample_order.hpp>
#include <dspp/data/sample_rows.hpp>

namespace dspp::data {

/// Batches of samples in an endless stream, as BatchStream takes them.
class SampleRange {
 public:
  /// The sample at a position of the stream.
  using Order = std::function<Size(Size position)>;

  /// Where the samples come from.
  struct Source {
    Size samples = 0;
    Order order{};                               // empty: epochs, each in an order of its own (sample_order.hpp)
    std::optional<std::uint64_t> fingerprint{};  // of the data; without one, three samples are compared

    std::uint64_t fingerprint_or_digest(const SampleRows& rows) const {
      return fingerprint ? *fingerprint : rows.digest_of({Size{0}, samples / 2, samples - 1});
    }
  };

  /// Throws   Error(usage) for a source without samples, sizes below 1 and samples that 63 bits do not count;
  ///          Error(placement) for fields that cannot be cut
  SampleRange(SampleRows rows, Source source, const BatchStream& stream);

  const BatchStream& stream() const { return stream_; }
  Size size() const { return stream_.batches(); }
  Size next_sample(Size steps) const { return stream_.next_sample(steps); }
  /// The number in the source of row `row` of batch `number`.
  Size sample(Size number, Size row) const;
  /// Writes this rank's part of batch `number`.
  void fill(Size number, HostBatch& batch) const;

  /// The facts that must be equal on all ranks: how batches are chosen, and from what data: its fingerprint, or a
  /// digest of the first, the middle and the last sample.
  Facts facts() const;
  /// Of the data as in facts() and their order, of an own one its first 64 positions: equal for runs that may resume
  /// each other.
  std::uint64_t data_digest() const;

 private:
  Facts of_data() const;

  SampleRows rows_;
  Source source_;
  BatchStream stream_;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
void check_samples(Size samples);
/// Throws   Error(usage) unless `chosen`, which a source's sample_at gave, is one of its samples
Size check_chosen(Size chosen, Size samples, Size position);
}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::check_samples(Size samples) {
  require(samples >= 1, "dspp: batches need a source with at least one sample, but its size is less. Give it samples.",
          ErrorCode::usage, {{"size", samples}});
}

DSPP_INLINE Size detail::check_chosen(Size chosen, Size samples, Size position) {
  if (chosen < 0 || chosen >= samples)
    fail(ErrorCode::usage, "dspp: a source's sample_at needs to give samples in [0, " + std::to_string(samples) +
                               "), but gave " + std::to_string(chosen) + " for position " + std::to_string(position) +
                               ". Change it, or size().");
  return chosen;
}

DSPP_INLINE SampleRange::SampleRange(SampleRows rows, Source source, const BatchStream& stream)
    : rows_(std::move(rows)), source_(std::move(source)), stream_(stream) {
  BatchSizes sizes = stream.sizes;
  sizes.sequence = std::max<Size>(sizes.sequence, 1);  // not every batch has sequences
  detail::check_training(sizes, stream.config, stream.share);
  detail::check_samples(source_.samples);
  check_cut(rows_.fields);
}

DSPP_INLINE Size SampleRange::sample(Size number, Size row) const {
  const Size position = stream_.position(number) + row, samples = source_.samples;
  if (!source_.order) return sample_at(stream_.config.seed, position, samples);
  return detail::check_chosen(source_.order(position), samples, position);
}

DSPP_INLINE void SampleRange::fill(Size number, HostBatch& batch) const {
  batch.first_sample = stream_.number_in_step(number);
  rows_.write([&](Size row) { return sample(number, row); }, batch);
}

DSPP_INLINE Facts SampleRange::facts() const {
  return stream_.facts().add(of_data());
}

DSPP_INLINE Facts SampleRange::of_data() const {
  Facts facts;
  facts.add("samples", source_.samples);
  for (const HostField& field : rows_.fields)
    facts.add("bytes of a sample's '" + field.name + "'", field.whole_bytes());
  return facts.add("digest of the data", digest_text(source_.fingerprint_or_digest(rows_)));
}

DSPP_INLINE std::uint64_t SampleRange::data_digest() const {
  Facts facts = of_data();
  facts.add("seed", stream_.config.seed);
  for (Size position = 0; source_.order && position < 64; ++position)
    facts.add("sample", detail::check_chosen(source_.order(position), source_.samples, position));
  return facts.digest();
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
