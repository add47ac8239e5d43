// SPDX-License-Identifier: Apache-2.0
/// The samples of each of a rank's batches, from a source of a user's own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/data/batches.hpp>
#include <dspp/data/host_batches.hpp>
#include <dspp/data/sample_order.hpp>

namespace dspp::data {

/// Batches of samples in an endless stream. A step's global batch takes the next micro_batch x accumulate x data ranks
/// of them, and its sample g = (micro_step ranks + rank) micro_batch + row is row `row` of one rank's batch. So the
/// stream does not depend on the number of ranks or the global batch.
class SampleRange {
 public:
  /// Writes a sample to one row of each field, whole along Cp; the bytes are zero before.
  using Fill = std::function<void(Size sample, std::byte* const* row)>;
  /// The sample at a position of the stream.
  using Order = std::function<Size(Size position)>;

  struct Plan {
    BatchSizes sizes{};
    BatchConfig config{};
    DataShare share{};
    Size samples = 0;
    std::vector<HostField> fields{};
    std::optional<std::uint64_t> fingerprint{};  // of the data; without one, three samples are compared
  };

  /// `order` may be empty: then the samples come in epochs, each in an order of its own (sample_order.hpp).
  ///
  /// Throws   Error(usage) for a source without samples, sizes below 1 and samples that 63 bits do not count
  SampleRange(Fill fill, Order order, Plan plan);

  const Plan& plan() const { return plan_; }
  Size size() const { return plan_.config.steps * plan_.sizes.accumulate; }
  /// The first_sample of a run that resumes after `steps` of these.
  Size next_sample(Size steps) const {
    return plan_.config.first_sample + (plan_.config.first_step + steps) * global_batch();
  }
  /// The number in the source of row `row` of batch `number`.
  Size sample(Size number, Size row) const;
  /// Writes this rank's part of batch `number`.
  void fill(Size number, HostBatch& batch) const;

  /// The facts that must be equal on all ranks: how batches are chosen, and from what data: its fingerprint, or a
  /// digest of the first, the middle and the last sample.
  Facts facts() const;

 private:
  std::uint64_t digest_of_some() const;
  Size global_batch() const { return plan_.sizes.micro_batch * plan_.sizes.accumulate * plan_.share.ranks; }

  Fill fill_;
  Order order_;
  Plan plan_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

/// One whole row of each field.
struct WholeRow {
  explicit WholeRow(const std::vector<HostField>& fields) {
    for (const HostField& field : fields) bytes.emplace_back(static_cast<std::size_t>(field.whole_bytes()));
    for (auto& row : bytes) rows.push_back(row.data());
  }
  void clear() {
    for (auto& row : bytes) std::fill(row.begin(), row.end(), std::byte{0});
  }
  HostBatch bytes;
  std::vector<std::byte*> rows;
};

}  // namespace detail

DSPP_INLINE SampleRange::SampleRange(Fill fill, Order order, Plan plan)
    : fill_(std::move(fill)), order_(std::move(order)), plan_(std::move(plan)) {
  BatchSizes sizes = plan_.sizes;
  sizes.sequence = std::max<Size>(sizes.sequence, 1);  // not every batch has sequences
  detail::check_training(sizes, plan_.config, plan_.share);
  require(plan_.samples >= 1,
          "dspp: batches need a source with at least one sample, but its size is less. Give it samples.",
          ErrorCode::usage, {{"size", plan_.samples}});
}

DSPP_INLINE Size SampleRange::sample(Size number, Size row) const {
  const auto& [sizes, config, share, samples, fields, fingerprint] = plan_;
  const Size step = number / sizes.accumulate, micro_step = number % sizes.accumulate;
  const Size position = next_sample(step) + (micro_step * share.ranks + share.rank) * sizes.micro_batch + row;
  if (!order_) return sample_at(config.seed, position, samples);
  const Size chosen = order_(position);
  if (chosen < 0 || chosen >= samples)
    fail(ErrorCode::usage, "dspp: a source's sample_at needs to give samples in [0, " + std::to_string(samples) +
                               "), but gave " + std::to_string(chosen) + " for position " + std::to_string(position) +
                               ". Change it, or size().");
  return chosen;
}

DSPP_INLINE void SampleRange::fill(Size number, HostBatch& batch) const {
  const std::vector<HostField>& fields = plan_.fields;
  const bool cut = std::any_of(fields.begin(), fields.end(), [](const HostField& field) { return field.parts > 1; });
  detail::WholeRow whole(cut ? fields : std::vector<HostField>{});
  std::vector<std::byte*> rows(fields.size());
  for (Size row = 0; row < plan_.sizes.micro_batch; ++row) {
    for (std::size_t i = 0; i < fields.size(); ++i) rows[i] = batch[i].data() + row * fields[i].row_bytes();
    if (cut) whole.clear();
    fill_(sample(number, row), cut ? whole.rows.data() : rows.data());
    for (std::size_t i = 0; cut && i < fields.size(); ++i) fields[i].cut(whole.rows[i], rows[i]);
  }
}

DSPP_INLINE Facts SampleRange::facts() const {
  const auto& [sizes, config, share, samples, fields, fingerprint] = plan_;
  Facts facts;
  facts.add("micro_batch", sizes.micro_batch)
      .add("sequence", sizes.sequence)
      .add("steps", config.steps)
      .add("accumulate", sizes.accumulate)
      .add("seed", config.seed)
      .add("first_step", config.first_step)
      .add("first_sample", config.first_sample)
      .add("samples", samples);
  for (const HostField& field : fields) facts.add("bytes of a sample's '" + field.name + "'", field.whole_bytes());
  return facts.add("digest of the data", digest_text(fingerprint ? *fingerprint : digest_of_some()));
}

DSPP_INLINE std::uint64_t SampleRange::digest_of_some() const {
  detail::WholeRow row(plan_.fields);
  Digest digest;
  for (const Size sample : {Size{0}, plan_.samples / 2, plan_.samples - 1}) {
    row.clear();
    fill_(sample, row.rows.data());
    for (const auto& bytes : row.bytes) digest.add(bytes.data(), std::ssize(bytes));
  }
  return digest.value();
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
