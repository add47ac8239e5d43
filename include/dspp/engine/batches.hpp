// SPDX-License-Identifier: Apache-2.0
/// Text or tokens as batches: each rank gets its share of the same global batch.
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

/// This rank's micro-batches, created on access and owned by the caller: if each is freed after its micro-step, a step
/// costs what plan() gives.
///
/// Memory   shares the text; 8 micro_batch sequence / cp bytes for each live batch
template <Device D>
class RankBatches {
 public:
  class Iterator {
   public:
    using value_type = Batch<D>;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    constexpr Iterator(const RankBatches* batches, Size number) : batches_(batches), number_(number) {}
    Batch<D> operator*() const { return (*batches_)[number_]; }
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

  RankBatches(data::BatchRange source, const BatchSizes& sizes, data::DataShare share, Memory<D>& memory,
              SequenceSlice slice = {})
      : source_(std::move(source)), sizes_(sizes), share_(share), memory_(&memory), slice_(slice) {}

  Size size() const { return source_.size(); }
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
  Batch<D> operator[](Size number) const;
  /// The first_sample of a run that continues after `steps` of these steps, with any number of ranks.
  Size next_sample(Size steps) const { return source_.next_sample(steps); }

 private:
  void require_step(Size number) const {
    const Size steps = size() / sizes_.accumulate;
    if (number < 0 || number >= steps)
      fail(ErrorCode::usage, "dspp: step(number) needs one of these " + std::to_string(steps) +
                                 " steps, counted from 0 whatever first_step is, but got " + std::to_string(number) +
                                 ". Subtract first_step.");
  }

  data::BatchRange source_;
  BatchSizes sizes_;
  data::DataShare share_;
  Memory<D>* memory_;
  SequenceSlice slice_;
};

template <Device D>
struct RankBatches<D>::OwningStep {
  RankBatches batches;
  Size number;
  Iterator begin() const { return batches.step(number).begin(); }
  Iterator end() const { return batches.step(number).end(); }
};

/// Random sequences of a text's training part (data/batches.hpp), or the samples of token files in epochs
/// (data/token_batches.hpp): steps x accumulate micro-batches of a `Text`, of `TokenShards`, or of a user type with
/// functions batches and windows like theirs in its namespace. The global batch of a step, of micro_batch x accumulate
/// x data sequences, is the same for every number of ranks.
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
  return RankBatches<DeviceOf<P>>(std::move(range), sizes, share, world.memory(), sequence_slice(world));
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
/// The batch of whole sequences that `fill(tokens, targets)` writes, or this rank's slice of its sequences.
///
/// Throws   Error(placement) unless the slices divide the sequence
template <Device D, class Fill>
Batch<D> filled_batch(Shape<2> whole, SequenceSlice slice, Memory<D>& memory, Fill fill) {
  using Ids = Tensor<std::int32_t, 2, D>;
  if (whole[1] % slice.parts != 0)
    fail(ErrorCode::placement, "dspp: a batch needs a sequence that the Cp degree divides, but it has " +
                                   std::to_string(whole[1]) + " tokens and Cp is " + std::to_string(slice.parts) +
                                   ". Change the sequence or Cp<n>.");
  const Shape<2> extents{{whole[0], whole[1] / slice.parts}};
  Batch<D> batch{Ids::uninitialized(extents, memory, Category::data, "tokens"),
                 Ids::uninitialized(extents, memory, Category::data, "targets")};
  batch.tokens.write([&](auto* own_tokens) {
    batch.targets.write([&](auto* own_targets) {
      if (slice.parts == 1) return fill(own_tokens, own_targets);
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(whole.count())), targets(tokens.size());
      fill(tokens.data(), targets.data());
      for (Size i = 0; i < whole[0]; ++i) {
        const Size from = i * whole[1] + slice.number * extents[1], to = i * extents[1];
        std::copy_n(tokens.begin() + from, extents[1], own_tokens + to);
        std::copy_n(targets.begin() + from, extents[1], own_targets + to);
      }
    });
  });
  return batch;
}
}  // namespace detail

template <Device D>
Batch<D> RankBatches<D>::operator[](Size number) const {
  const Size micro_step = number % sizes_.accumulate;
  auto batch = detail::filled_batch<D>(shape(sizes_.micro_batch, sizes_.sequence), slice_, *memory_,
                                       [&](auto* tokens, auto* targets) { source_.fill(number, tokens, targets); });
  batch.accumulate = sizes_.accumulate;
  batch.first_sample = (micro_step * share_.ranks + share_.rank) * sizes_.micro_batch;
  return batch;
}

}  // namespace dspp
