// SPDX-License-Identifier: Apache-2.0
/// Rows of a batch in host memory, each of one sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <dspp/base/digest.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/base/list.hpp>
#include <dspp/data/host_batches.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#endif

namespace dspp::data {

/// How samples become batches of `rows` rows.
struct SampleRows {
  /// Writes a sample to one row of each field, whole along Cp, which holds the field's padding before.
  using Fill = std::function<void(Size sample, std::byte* const* row)>;
  static constexpr Size no_sample = -1;  // a row of padding

  Fill fill;
  std::vector<HostField> fields{};
  Size rows = 0;
  List<Size> extents{};  // of a batch, as in HostBatch

  /// Writes this rank's part of a batch whose row `row` is sample(row).
  void write(FunctionRef<Size(Size row)> sample, HostBatch& batch) const;
  /// A digest of some samples.
  std::uint64_t digest_of(std::vector<Size> samples) const;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

/// One whole row of each field, of padding.
struct WholeRow {
  explicit WholeRow(const std::vector<HostField>& fields) {
    for (const HostField& field : fields) {
      auto& row = bytes.emplace_back(static_cast<std::size_t>(field.whole_bytes()));
      for (std::size_t i = 0; !field.padding.empty() && i < row.size(); ++i)
        row[i] = field.padding[i % field.padding.size()];
    }
    for (auto& row : bytes) rows.push_back(row.data());
  }
  void assign(const WholeRow& other) {
    for (std::size_t i = 0; i < bytes.size(); ++i) std::copy(other.bytes[i].begin(), other.bytes[i].end(), rows[i]);
  }
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::byte*> rows;
};

}  // namespace detail

DSPP_INLINE void SampleRows::write(FunctionRef<Size(Size row)> sample, HostBatch& batch) const {
  batch.extents = extents;
  batch.fields.resize(fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i)
    batch.fields[i].resize(static_cast<std::size_t>(rows * fields[i].row_bytes()));
  const detail::WholeRow padding(fields);
  detail::WholeRow whole(fields);
  for (Size row = 0; row < rows; ++row) {
    const auto own = [&](std::size_t i) { return batch.fields[i].data() + row * fields[i].row_bytes(); };
    for (std::size_t i = 0; i < fields.size(); ++i)
      if (fields[i].parts == 1) whole.rows[i] = own(i);  // written in place
    whole.assign(padding);
    const Size number = sample(row);
    if (number != no_sample) fill(number, whole.rows.data());
    for (std::size_t i = 0; i < fields.size(); ++i)
      if (fields[i].parts > 1) fields[i].cut(whole.rows[i], own(i));
  }
}

DSPP_INLINE std::uint64_t SampleRows::digest_of(std::vector<Size> samples) const {
  const detail::WholeRow padding(fields);
  detail::WholeRow row(fields);
  Digest digest;
  for (const Size sample : samples) {
    row.assign(padding);
    fill(sample, row.rows.data());
    for (const auto& bytes : row.bytes) digest.add(bytes.data(), std::ssize(bytes));
  }
  return digest.value();
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
