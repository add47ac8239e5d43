// SPDX-License-Identifier: Apache-2.0
/// The input of one rank for one micro-step.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

#include <dspp/data/batch_sizes.hpp>
#include <dspp/ops/bits.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// Token ids and, for each, the token to predict: [micro_batch, sequence]. `first_sample` is the global index of the
/// first row, counted over all ranks and micro-steps: it keys dropout. batches() sets it; if it is left at 0, all ranks
/// and micro-steps draw the same dropout mask. `target_weights` are the weights, 0 or more, of the targets in the mean
/// loss: a common factor changes nothing. Unset, each weight is 1. `accumulate` is the number of batches in a step,
/// which batches() sets and Engine compares with its own; 0: not said. Refill a batch after its backward, not before.
template <Device D>
struct Batch {
  Tensor<std::int32_t, 2, D> tokens, targets;
  Size first_sample = 0;
  Tensor<float, 2, D> target_weights{};
  Size accumulate = 0;
};

/// Throws   Error(usage) if tokens or targets are missing, Error(shape) if they are empty or differ in shape
template <Device D>
constexpr void check_batch(const Batch<D>& batch) {
  // clang-format off
  require(batch.tokens && batch.targets, "dspp: a Batch needs tokens and targets, but one of them was never set. Give both a Tensor.");
  require(batch.tokens.count() > 0, "dspp: a Batch needs at least one row and one token, but it is empty. Leave it out.", ErrorCode::shape,
          {{"rows", batch.tokens[0]}, {"tokens a row", batch.tokens[1]}});
  require(batch.targets.shape() == batch.tokens.shape(), "dspp: a Batch needs a target for every token, but the two have different shapes. Give targets the shape of tokens.", ErrorCode::shape,
          {{"rows", batch.tokens[0]}, {"tokens a row", batch.tokens[1]},
           {"rows of targets", batch.targets[0]}, {"targets a row", batch.targets[1]}});
  const bool weighed_alike = !batch.target_weights || batch.target_weights.shape() == batch.targets.shape();
  require(weighed_alike, "dspp: a Batch needs a weight for every target, but target_weights have another shape. Give them the shape of targets, or leave them out.", ErrorCode::shape,
          {{"rows", batch.targets[0]}, {"targets a row", batch.targets[1]},
           {"rows of weights", batch.target_weights[0]}, {"weights a row", batch.target_weights[1]}});
  require(batch.first_sample >= 0, "dspp: a Batch needs a first_sample of at least 0, but it is less. Count samples from 0.", ErrorCode::usage, {{"first_sample", batch.first_sample}});
  // clang-format on
}

/// Compares a rank's batch, whose rows hold 1 / cp of their sequences, with the sizes of its engine: plan() does not
/// cover a larger one.
///
/// Throws   Error(usage) for another accumulate; Error(shape) for more rows or longer sequences, if sizes.sequence is
///          set
template <Device D>
constexpr void check_batch_fits(const Batch<D>& batch, const BatchSizes& sizes, int cp) {
  // clang-format off
  require(batch.accumulate == 0 || batch.accumulate == sizes.accumulate, "dspp: Engine needs batches made for its own accumulate, but got one made for another. Give both the same BatchSizes.",
          ErrorCode::usage,
          {{"accumulate of the batch", batch.accumulate}, {"accumulate of the engine", sizes.accumulate}});
  // clang-format on
  if (sizes.sequence == 0) return;
  const Size rows = batch.tokens[0], sequence = batch.tokens[1] * cp;
  // clang-format off
  require(rows <= sizes.micro_batch && sequence <= sizes.sequence, "dspp: Engine needs batches of at most its micro_batch and sequence, but got a larger one. Give both the same sizes.",
          ErrorCode::shape, {{"rows", rows}, {"micro_batch", sizes.micro_batch},
           {"tokens of a sequence", sequence}, {"sequence", sizes.sequence}});
  // clang-format on
}

namespace detail {
/// The micro-batches of a step: a range as it is, a Batch as a range of one.
template <Device D, class Batches>
constexpr decltype(auto) as_batches(const Batches& batches) {
  if constexpr (std::is_same_v<Batches, Batch<D>>) {
    return std::span<const Batch<D>>(&batches, 1);
  } else {
    constexpr bool range = requires {
      static_cast<const Batch<D>&>(*std::begin(batches));
    };
    static_assert(
        range,
        "dspp: train_batch needs a Batch on the engine's device, or a range of them, one for each micro-step, "
        "but got another type. Give it std::array{first, second}, or what batches() gives.");
    if constexpr (range)
      return (batches);
    else
      return std::span<const Batch<D>>();
  }
}

/// A digest of what a batch holds; 0 on paper.
///
/// Cost     reads it once; synchronizes
template <Device D>
constexpr std::uint64_t digest_of(const Batch<D>& batch) {
  std::uint64_t digest = 0;
  const auto add = [&](const auto& tensor) {
    if (!tensor) return;
    const Size width = tensor.bytes() / tensor.count();
    digest =
        ops::digest<D>(tensor.memory(), byte_of<D>(tensor.storage(), tensor.offset() * width), tensor.bytes(), digest);
  };
  add(batch.tokens), add(batch.targets), add(batch.target_weights);
  return digest;
}
}  // namespace detail

}  // namespace dspp
