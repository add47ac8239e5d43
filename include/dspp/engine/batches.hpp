// SPDX-License-Identifier: Apache-2.0
/// Text or tokens as the batches of a world: each rank its share of the same global batch.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include <dspp/data/batches.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/engine/world.hpp>

namespace dspp {

/// This rank's micro-batches, made when they are asked for and owned by whoever asks: a step whose batches end with
/// their micro-step costs what plan() says.
///
/// Memory   shares the text; 8 micro_batch sequence bytes for each batch that lives
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

  /// The micro-batches of one step: `for (auto batch : data.step(3))`. Refers to the RankBatches.
  struct Step {
    const RankBatches* batches;
    Size first, count;
    Iterator begin() const { return {batches, first}; }
    Iterator end() const { return {batches, first + count}; }
  };

  RankBatches(detail::BatchRange source, const BatchConfig& config, DataShare share, Memory<D>& memory)
      : source_(std::move(source)), config_(config), share_(share), memory_(&memory) {}

  Size size() const { return source_.size(); }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }
  /// Step `number` of config.steps, counted from 0 whatever first_step is.
  Step step(Size number) const { return {this, number * config_.accumulate, config_.accumulate}; }
  Batch<D> operator[](Size number) const;
  /// The first_sample of a run that goes on after `steps` of these, in whatever world.
  Size next_sample(Size steps) const { return source_.next_sample(steps); }

 private:
  detail::BatchRange source_;
  BatchConfig config_;
  DataShare share_;
  Memory<D>* memory_;
};

/// Random sequences of a text's training part, or the samples of token files in epochs (data/batches.hpp): steps x
/// accumulate micro-batches of a `Text` or of `TokenShards`. The global batch of a step, of micro_batch x accumulate x
/// data sequences, is the same for every number of ranks.
///
/// Throws   Error(file) if the training part is shorter than one sequence and its last target; Error(usage)
/// Example  for (auto batch : batches(world, TextFiles{"corpus/"}, {.micro_batch = 8, .sequence = 256, .steps = 500}))
template <class P, class Source>
auto batches(World<P>& world, std::shared_ptr<Source> text, const BatchConfig& config) {
  const DataShare share{world.data_rank(), world.data_size()};
  return RankBatches<DeviceOf<P>>(batches(std::move(text), config, share), config, share, world.memory());
}

/// The same from files, which every rank reads for itself.
template <class P>
auto batches(World<P>& world, const TextFiles& files, const BatchConfig& config) {
  return batches(world, std::make_shared<const Text>(read_text(files)), config);
}

/// The same from token files, which every rank maps for itself.
template <class P>
auto batches(World<P>& world, const TokenFiles& files, const BatchConfig& config) {
  return batches(world, std::make_shared<const TokenShards>(files), config);
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Room for a batch, which the caller fills.
template <Device D>
Batch<D> empty_batch(Size micro_batch, Size sequence, Memory<D>& memory) {
  using Ids = Tensor<std::int32_t, 2, D>;
  const auto extents = shape(micro_batch, sequence);
  return {Ids::uninitialized(extents, memory, Category::data, "tokens"),
          Ids::uninitialized(extents, memory, Category::data, "targets")};
}
}  // namespace detail

template <Device D>
Batch<D> RankBatches<D>::operator[](Size number) const {
  auto batch = detail::empty_batch<D>(config_.micro_batch, config_.sequence, *memory_);
  const Size micro_step = number % config_.accumulate;
  batch.first_sample = (micro_step * share_.ranks + share_.rank) * config_.micro_batch;
  source_.fill(number, batch.tokens.data(), batch.targets.data());
  return batch;
}

}  // namespace dspp
