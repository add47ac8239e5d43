// SPDX-License-Identifier: Apache-2.0
/// Text, tokens or samples as batches: each rank gets its share of the same global batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
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
  return {world.cp_rank(), P::cp};
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

  /// The position of the data's stream after some steps.
  using NextSample = std::function<Size(Size steps)>;

  /// What a run that resumes gives to BatchConfig.
  struct Stream {
    NextSample next_sample;
    std::function<std::uint64_t()> data_digest;
  };

  RankBatches(std::shared_ptr<data::HostBatches> source, Size accumulate, Stream stream, Memory<D>& memory)
      : source_(std::move(source)), accumulate_(accumulate), stream_(std::move(stream)), memory_(&memory) {}

  Size size() const { return source_->size(); }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }
  /// Step `number` of BatchConfig::steps, counted from 0 whatever first_step is.
  ///
  /// Throws   Error(usage) for a number outside
  Step step(Size number) const& {
    require_step(number);
    return {this, number * accumulate_, accumulate_};
  }
  OwningStep step(Size number) const&& {
    require_step(number);
    return {*this, number};
  }
  /// Throws   what the data throw when they are read
  B operator[](Size number) const;
  /// The first_sample of a run that continues after `steps` of these steps, with any number of ranks.
  Size next_sample(Size steps) const { return stream_.next_sample(steps); }
  /// A digest of the data and their order, not of sizes and ranks: for TrainingPosition and BatchConfig::data_digest.
  std::uint64_t data_digest() const { return stream_.data_digest(); }

 private:
  void require_step(Size number) const {
    const Size steps = size() / accumulate_;
    if (number < 0 || number >= steps)
      fail(ErrorCode::usage, "dspp: step(number) needs one of these " + std::to_string(steps) +
                                 " steps, counted from 0 whatever first_step is, but got " + std::to_string(number) +
                                 ". Subtract first_step.");
  }

  std::shared_ptr<data::HostBatches> source_;
  Size accumulate_;
  Stream stream_;
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
RankBatches<Batch<D>, D> token_batches(data::BatchRange range, Memory<D>& memory, SequenceSlice slice);
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
  data::detail::check_resumed(config, range);
  return detail::token_batches<DeviceOf<P>>(std::move(range), world.memory(), sequence_slice(world));
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

/// A field of `sequence` tokens, of which a rank has a slice.
///
/// Throws   Error(placement) unless the slices divide the sequence
data::HostField token_field(Size sequence, SequenceSlice slice);

/// The slices of the `rows` whole sequences that `fill(tokens, targets)` writes.
template <class Fill>
void fill_slices(const data::HostField& field, Size rows, data::HostBatch& batch, Fill fill) {
  const Size own = field.extent / field.parts;
  batch.extents = {rows, own, rows, own, 0, 0};  // no target_weights
  batch.fields.resize(2);
  for (auto& bytes : batch.fields) bytes.resize(static_cast<std::size_t>(rows * field.row_bytes()));
  const auto ids = [](std::vector<std::byte>& bytes) { return reinterpret_cast<std::int32_t*>(bytes.data()); };
  if (field.parts == 1) return fill(ids(batch.fields[0]), ids(batch.fields[1]));
  std::vector<std::byte> whole[2];
  for (auto& bytes : whole) bytes.resize(static_cast<std::size_t>(rows * field.whole_bytes()));
  fill(ids(whole[0]), ids(whole[1]));
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    for (Size row = 0; row < rows; ++row)
      field.cut(whole[i].data() + row * field.whole_bytes(), batch.fields[i].data() + row * field.row_bytes());
}

/// A batch of the host's memory on the device.
template <class B, class Memory>
B device_batch(const data::HostBatch& host, Memory& memory) {
  std::size_t field = 0;
  return batch_of<B>(host.extents, [&]<class Field>(const char* name, const auto& shape) {
    auto tensor = Field::uninitialized(shape, memory, Category::data, name);
    tensor.write([&](auto* to) {
      const std::vector<std::byte>& from = host.fields[field];
      std::copy(from.begin(), from.end(), reinterpret_cast<std::byte*>(to));
    });
    ++field;
    return tensor;
  });
}

/// The batches of a range that `fill` writes.
template <class B, Device D, class Range>
RankBatches<B, D> rank_batches(const Range& range, Memory<D>& memory, data::HostBatches::Fill fill) {
  const data::BatchStream stream = range.stream();
  auto source = std::make_shared<data::HostBatches>(stream.batches(), stream.config.prefetch, std::move(fill));
  return {std::move(source),
          stream.sizes.accumulate,
          {[stream](Size steps) { return stream.next_sample(steps); }, [range] { return range.data_digest(); }},
          memory};
}

/// The batch of whole sequences that `fill(tokens, targets)` writes, or this rank's slice of its sequences.
///
/// Throws   Error(placement) unless the slices divide the sequence
template <Device D, class Fill>
Batch<D> filled_batch(Shape<2> whole, SequenceSlice slice, Memory<D>& memory, Fill fill) {
  data::HostBatch batch;
  fill_slices(token_field(whole[1], slice), whole[0], batch, fill);
  return device_batch<Batch<D>>(batch, memory);
}

template <Device D>
RankBatches<Batch<D>, D> token_batches(data::BatchRange range, Memory<D>& memory, SequenceSlice slice) {
  const data::BatchStream stream = range.stream();
  auto fill = [range, stream, field = token_field(stream.sizes.sequence, slice)](Size number, data::HostBatch& batch) {
    batch.first_sample = stream.number_in_step(number);
    fill_slices(field, stream.sizes.micro_batch, batch,
                [&](auto* tokens, auto* targets) { range.fill(number, tokens, targets); });
  };
  return rank_batches<Batch<D>, D>(range, memory, std::move(fill));
}

}  // namespace detail

template <class B, Device D>
B RankBatches<B, D>::operator[](Size number) const {
  B batch;
  source_->read(number, [&](const data::HostBatch& host) {
    batch = detail::device_batch<B>(host, *memory_);
    if constexpr (requires { batch.first_sample; }) batch.first_sample = host.first_sample;
  });
  if constexpr (requires { batch.accumulate; }) batch.accumulate = accumulate_;
  return batch;
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE data::HostField detail::token_field(Size sequence, SequenceSlice slice) {
  data::HostField field{.name = "tokens", .extent = sequence, .inner_bytes = sizeof(std::int32_t)};
  field.part = slice.number, field.parts = slice.parts;
  data::check_cut({field});
  return field;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
