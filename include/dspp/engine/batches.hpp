// SPDX-License-Identifier: Apache-2.0
/// Text, tokens or samples as batches: each rank gets its share of the same global batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dspp/comm/same_facts.hpp>
#include <dspp/data/batches.hpp>
#include <dspp/data/host_batches.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/launch/world.hpp>

namespace dspp {

/// Part `number` of `parts` of every sequence: the slice of one rank of Cp.
struct SequenceSlice {
  Size number = 0, parts = 1;
};

template <class P>
SequenceSlice sequence_slice(const World<P>& world) {
  return {world.place().cp, P::cp};
}

/// This rank's micro-batches of type B, created on access and owned by the caller: if each is freed after its
/// micro-step, a step costs what plan() gives. With BatchConfig::prefetch a thread prepares the next ones in the host's
/// memory; the batches are the same. Copies share that thread.
///
/// Memory   shares the data; the fields of each live batch, and 1 + prefetch batches in the host's memory outside of
///          the Pool
template <class B, Device D>
class RankBatches {
 public:
  class Iterator {
   public:
    using value_type = B;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    constexpr Iterator(const RankBatches* batches, Size number) : batches_(batches), number_(number) {}
    B operator*() const { return (*batches_)[number_]; }
    Iterator& operator++() { return ++number_, *this; }
    void operator++(int) { ++number_; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.number_ == b.number_; }

   private:
    const RankBatches* batches_;
    Size number_;
  };

  /// The micro-batches of one step: `for (auto batch : data.step(3))`. Refers to the RankBatches, or owns it if that
  /// was a temporary.
  struct Step {
    const RankBatches* batches;
    Size first, count;
    Iterator begin() const { return {batches, first}; }
    Iterator end() const { return {batches, first + count}; }
  };
  struct OwningStep;

  /// `extents` are those of the fields of a batch, one after another. `first_sample` is that of the first batch.
  RankBatches(std::shared_ptr<data::HostBatches> source, const List<Size>& extents, const BatchSizes& sizes,
              data::DataShare share, Size first_sample, Memory<D>& memory)
      : source_(std::move(source)),
        extents_(extents),
        sizes_(sizes),
        share_(share),
        first_sample_(first_sample),
        memory_(&memory) {}

  Size size() const { return source_->size(); }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }
  /// Step `number` of BatchConfig::steps, counted from 0 whatever first_step is.
  ///
  /// Throws   Error(usage) for a number outside
  Step step(Size number) const& {
    require_step(number);
    return {this, number * sizes_.accumulate, sizes_.accumulate};
  }
  OwningStep step(Size number) const&& {
    require_step(number);
    return {*this, number};
  }
  /// Throws   what the data throw when they are read
  B operator[](Size number) const;
  /// The first_sample of a run that continues after `steps` of these steps, with any number of ranks.
  Size next_sample(Size steps) const {
    return first_sample_ + steps * sizes_.micro_batch * sizes_.accumulate * share_.ranks;
  }

 private:
  void require_step(Size number) const {
    const Size steps = size() / sizes_.accumulate;
    if (number < 0 || number >= steps)
      fail(ErrorCode::usage, "dspp: step(number) needs one of these " + std::to_string(steps) +
                                 " steps, counted from 0 whatever first_step is, but got " + std::to_string(number) +
                                 ". Subtract first_step.");
  }

  std::shared_ptr<data::HostBatches> source_;
  List<Size> extents_;
  BatchSizes sizes_;
  data::DataShare share_;
  Size first_sample_;
  Memory<D>* memory_;
};

template <class B, Device D>
struct RankBatches<B, D>::OwningStep {
  RankBatches batches;
  Size number;
  Iterator begin() const { return batches.step(number).begin(); }
  Iterator end() const { return batches.step(number).end(); }
};

namespace detail {
template <Device D>
RankBatches<Batch<D>, D> token_batches(data::BatchRange range, const BatchSizes& sizes, const data::BatchConfig& config,
                                       data::DataShare share, Memory<D>& memory, SequenceSlice slice);
}

/// Random sequences of a text's training part (data/batches.hpp), or the samples of token files in epochs
/// (data/token_batches.hpp): steps x accumulate micro-batches of a `Text`, of `TokenShards`, or of a user type with
/// functions batches and windows like theirs in its namespace. The global batch of a step, of micro_batch x accumulate
/// x data sequences, is the same for every number of ranks. Samples of a source of your own: source_batches.hpp.
///
/// Call on every rank: data, sizes and seed are compared.
///
/// Throws   Error(file) if the training part is shorter than one sequence and its last target; Error(usage)
/// Example  for (auto batch : batches(world, data::TextFiles{"corpus/"}, sizes, {.steps = 500}))
template <class P, class Source>
auto batches(World<P>& world, std::shared_ptr<Source> text, const BatchSizes& sizes,
             const data::BatchConfig& config = {}) {
  const data::DataShare share{world.data_rank(), world.data_size()};
  data::BatchRange range = batches(std::move(text), sizes, config, share);
  require_same_on_all_ranks(world.host(), "batches()", range.facts());
  return detail::token_batches<DeviceOf<P>>(std::move(range), sizes, config, share, world.memory(),
                                            sequence_slice(world));
}

/// The same from files, which every rank reads: `TextFiles`, `TokenFiles` (data/token_batches.hpp), or a user type with
/// a function open_data(files) in its namespace that returns a std::shared_ptr to the data.
template <class P, class Files>
requires requires(const Files& files) {
  open_data(files);
}
auto batches(World<P>& world, const Files& files, const BatchSizes& sizes, const data::BatchConfig& config = {}) {
  return batches(world, open_data(files), sizes, config);
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Tokens and targets of `sequence` tokens, of which a rank has a slice.
std::vector<data::HostField> token_fields(Size sequence, SequenceSlice slice);

/// The slices of the whole sequences that `fill(tokens, targets)` writes.
template <class Fill>
void fill_slices(const std::vector<data::HostField>& fields, Size rows, data::HostBatch& batch, Fill fill) {
  const auto ids = [](std::vector<std::byte>& bytes) { return reinterpret_cast<std::int32_t*>(bytes.data()); };
  if (fields[0].parts == 1) return fill(ids(batch[0]), ids(batch[1]));
  std::vector<std::byte> whole[2];
  for (auto& bytes : whole) bytes.resize(static_cast<std::size_t>(rows * fields[0].whole_bytes()));
  fill(ids(whole[0]), ids(whole[1]));
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    for (Size row = 0; row < rows; ++row)
      fields[i].cut(whole[i].data() + row * fields[i].whole_bytes(), batch[i].data() + row * fields[i].row_bytes());
}

/// A batch of the host's memory on the device.
template <class B, class Memory>
B device_batch(const data::HostBatch& host, const List<Size>& extents, Memory& memory) {
  std::size_t field = 0;
  return batch_of<B>(extents, [&]<class Field>(const char* name, const auto& shape) {
    auto tensor = Field::uninitialized(shape, memory, Category::data, name);
    tensor.write([&](auto* to) {
      const std::vector<std::byte>& from = host[field];
      std::copy(from.begin(), from.end(), reinterpret_cast<std::byte*>(to));
    });
    ++field;
    return tensor;
  });
}

inline List<Size> token_extents(Size rows, Size sequence, SequenceSlice slice) {
  const Size own = sequence / slice.parts;
  return {rows, own, rows, own, 0, 0};  // no target_weights
}

/// The batch of whole sequences that `fill(tokens, targets)` writes, or this rank's slice of its sequences.
///
/// Throws   Error(placement) unless the slices divide the sequence
template <Device D, class Fill>
Batch<D> filled_batch(Shape<2> whole, SequenceSlice slice, Memory<D>& memory, Fill fill) {
  const auto fields = token_fields(whole[1], slice);
  data::HostBatches source(fields, whole[0], 1, 0,
                           [&](Size, data::HostBatch& batch) { fill_slices(fields, whole[0], batch, fill); });
  Batch<D> result;
  source.read(0, [&](const data::HostBatch& batch) {
    result = device_batch<Batch<D>>(batch, token_extents(whole[0], whole[1], slice), memory);
  });
  return result;
}

template <Device D>
RankBatches<Batch<D>, D> token_batches(data::BatchRange range, const BatchSizes& sizes, const data::BatchConfig& config,
                                       data::DataShare share, Memory<D>& memory, SequenceSlice slice) {
  const auto fields = token_fields(sizes.sequence, slice);
  const Size count = range.size(), first_sample = range.next_sample(0);
  auto fill = [range = std::move(range), fields, rows = sizes.micro_batch](Size number, data::HostBatch& batch) {
    fill_slices(fields, rows, batch, [&](auto* tokens, auto* targets) { range.fill(number, tokens, targets); });
  };
  auto source = std::make_shared<data::HostBatches>(fields, sizes.micro_batch, count, config.prefetch, std::move(fill));
  return {
      std::move(source), token_extents(sizes.micro_batch, sizes.sequence, slice), sizes, share, first_sample, memory};
}

}  // namespace detail

template <class B, Device D>
B RankBatches<B, D>::operator[](Size number) const {
  const Size micro_step = number % sizes_.accumulate;
  B batch;
  source_->read(number,
                [&](const data::HostBatch& host) { batch = detail::device_batch<B>(host, extents_, *memory_); });
  if constexpr (requires { batch.accumulate; }) batch.accumulate = sizes_.accumulate;
  if constexpr (requires { batch.first_sample; })
    batch.first_sample = (micro_step * share_.ranks + share_.rank) * sizes_.micro_batch;
  return batch;
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::vector<data::HostField> detail::token_fields(Size sequence, SequenceSlice slice) {
  data::HostField field{.name = "tokens", .extent = sequence, .inner_bytes = sizeof(std::int32_t)};
  field.part = slice.number, field.parts = slice.parts;
  std::vector<data::HostField> fields(2, field);
  fields[1].name = "targets";
  return fields;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
