// SPDX-License-Identifier: Apache-2.0
/// The input of one rank for one micro-step.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>

#include <dspp/data/batch_sizes.hpp>
#include <dspp/engine/batch_fields.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// Token ids and, for each, the token to predict: [micro_batch, sequence]. `first_sample` is the global index of the
/// first row, counted over all ranks and micro-steps: it keys dropout. batches() sets it; if it is left at 0, all ranks
/// and micro-steps draw the same dropout mask. `target_weights` are the weights, 0 or more, of the targets in the mean
/// loss: a common factor changes nothing. Unset, each weight is 1. `accumulate` is the number of batches in a step,
/// which batches() sets and Engine compares with its own; 0: not said. Refill a batch after its backward, not before.
///
/// It is the batch of a model with loss(tokens, targets). A model with loss(const Mine<P>& batch) has batches of its
/// own, of any fields: see Input in nn/layer.hpp.
template <Device D>
struct Batch {
  Tensor<std::int32_t, 2, D> tokens, targets;
  Size first_sample = 0;
  Tensor<float, 2, D> target_weights{};
  Size accumulate = 0;

  constexpr void visit(auto&& f) { f("tokens", tokens), f("targets", targets), f("target_weights", target_weights); }
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
  detail::check_accumulate(batch, sizes);
  if (sizes.sequence == 0) return;
  const Size rows = batch.tokens[0], sequence = batch.tokens[1] * cp;
  // clang-format off
  require(rows <= sizes.micro_batch && sequence <= sizes.sequence, "dspp: Engine needs batches of at most its micro_batch and sequence, but got a larger one. Give both the same sizes.",
          ErrorCode::shape, {{"rows", rows}, {"micro_batch", sizes.micro_batch},
           {"tokens of a sequence", sequence}, {"sequence", sizes.sequence}});
  // clang-format on
}

namespace detail {
/// The batch that a model's loss takes, from its only parameter; void if it takes tokens and targets.
template <class Loss>
struct BatchOfLoss {
  using type = void;
  static constexpr bool fits = false;  ///< Engine can call it
};
template <class R, class M, class B>
struct BatchOfLoss<R (M::*)(B) const> {
  using type = std::remove_cvref_t<B>;
  static constexpr bool fits = true;
};
template <class R, class M, class Tokens, class Targets>
struct BatchOfLoss<R (M::*)(Tokens, Targets) const> {
  using type = void;
  static constexpr bool fits = true;
};
template <class R, class M, class... Parameters>
struct BatchOfLoss<R (M::*)(Parameters...) const noexcept> : BatchOfLoss<R (M::*)(Parameters...) const> {};

/// False for a loss that takes other parameters, or is not const. One that is overloaded or a template is called with
/// tokens and targets.
template <class Model>
constexpr bool loss_fits() {
  if constexpr (requires { &Model::loss; })
    return BatchOfLoss<decltype(&Model::loss)>::fits;
  else
    return requires(const Model& model, const Tokens<typename Model::policy>& ids) {
      model.loss(ids, ids);
    };
}
template <class Model>
constexpr auto batch_of_model() {
  using Tokens = Batch<typename Model::policy::DeviceType>;
  if constexpr (requires { &Model::loss; }) {
    using Own = typename BatchOfLoss<decltype(&Model::loss)>::type;
    return std::type_identity<std::conditional_t<std::is_void_v<Own>, Tokens, Own>>();
  } else {
    return std::type_identity<Tokens>();
  }
}
template <class B>
inline constexpr bool is_token_batch = false;
template <Device D>
inline constexpr bool is_token_batch<Batch<D>> = true;
}  // namespace detail

/// What a model trains on: the parameter of its loss(const Mine<P>& batch), or Batch, if it has loss(tokens, targets).
template <class Model>
using BatchOf = typename decltype(detail::batch_of_model<Model>())::type;

namespace detail {
/// The micro-batches of a step: a range as it is, a Batch as a range of one.
template <class B, class Batches>
constexpr decltype(auto) as_batches(const Batches& batches) {
  if constexpr (std::is_same_v<Batches, B>) {
    return std::span<const B>(&batches, 1);
  } else {
    constexpr bool range = requires {
      static_cast<const B&>(*std::begin(batches));
    };
    static_assert(
        range,
        "dspp: train_batch needs a Batch on the engine's device, or a range of them, one for each micro-step, "
        "but got another type. Give it std::array{first, second}, or what batches() gives.");
    if constexpr (range)
      return (batches);
    else
      return std::span<const B>();
  }
}

/// The errors of calls out of order.
[[noreturn]] void refuse_forward(Size micro_steps);
[[noreturn]] void refuse_backward();
[[noreturn]] void refuse_step();
[[noreturn]] void refuse_gather_gradient();
[[noreturn]] void refuse_begun(Size micro_steps);
[[noreturn]] void refuse_micro_batches(Size needed, const char* got);
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_forward(Size micro_steps) {
  fail(ErrorCode::state, "dspp: forward needs the pending step to be taken first, but its " +
                             std::to_string(micro_steps) + " micro-steps have only been accumulated. Call step().");
}
DSPP_INLINE void detail::refuse_backward() {
  fail(
      ErrorCode::state,
      "dspp: backward needs fewer than BatchSizes::accumulate micro-steps before it, but all are done. Call step(), or "
      "raise accumulate.");
}
DSPP_INLINE void detail::refuse_step() {
  fail(ErrorCode::state,
       "dspp: step needs a backward since the last step, but there was none: nothing was learned. Call forward(batch), "
       "backward(loss), then step().");
}
DSPP_INLINE void detail::refuse_gather_gradient() {
  fail(
      ErrorCode::state,
      "dspp: gather_gradient needs a backward since the last step, but there was none: gradients are gone. Ask between "
      "backward and step.");
}
DSPP_INLINE void detail::refuse_begun(Size micro_steps) {
  fail(ErrorCode::state, "dspp: train_batch needs a step that has not begun, but " + std::to_string(micro_steps) +
                             " micro-steps are done. Finish it with forward, backward and step.");
}
DSPP_INLINE void detail::refuse_micro_batches(Size needed, const char* got) {
  fail(ErrorCode::usage, "dspp: train_batch needs " + std::to_string(needed) +
                             " micro-batches, one for each micro-step of BatchSizes::accumulate, but got " + got +
                             ". Give it those of one step.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
