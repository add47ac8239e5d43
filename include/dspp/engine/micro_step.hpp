// SPDX-License-Identifier: Apache-2.0
/// The state of one micro-step between its forward and its backward.
#pragma once

#include <cstdint>

#include <dspp/autograd/tape.hpp>
#include <dspp/engine/known_at_once.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/rank_check.hpp>
#include <dspp/engine/step_targets.hpp>
#include <dspp/nn/gradient_ledger.hpp>

namespace dspp {

namespace detail {

/// The part of a micro-step that does not depend on the type of its batch.
template <Device D>
class MicroStepState {
 protected:
  [[gnu::noinline]] constexpr MicroStepState(const void* engine, const Context<D>& context, int counters)
      : engine_(engine), context_(context), tape_(context_) {
    uses_.resize(static_cast<std::size_t>(counters));
  }
  MicroStepState(const MicroStepState&) = delete;
  MicroStepState& operator=(const MicroStepState&) = delete;
  [[gnu::noinline]] constexpr ~MicroStepState() {}  // not defaulted: g++ leaves those out of the library

  constexpr void require_engine(const void* engine) const {
    // clang-format off
    require(engine_ == engine, "dspp: an engine needs micro-steps of its own, but got another engine's. Take engine.micro_step().", ErrorCode::usage);
    // clang-format on
  }
  [[gnu::noinline]] constexpr void abandon() {
    tape_.clear();
    targets_ = {};
    reports_.clear();
    waits_for_backward_ = false;
    if (!counts_uses_) return;
    for (int& pending : uses_) pending = 0;
    counts_uses_ = false;
  }

  /// Its number among the forwards of a step, the same for all until its backward, one that threw included.
  constexpr Size take_number(Size step, Size& next) {
    if (numbered_ != step) numbered_ = step, number_ = next++;
    return number_;
  }
  /// Gives up the number, if it is the last that was taken.
  constexpr bool give_back_number(Size step, Size next) {
    if (numbered_ != step || number_ + 1 != next) return false;
    numbered_ = -1;
    return true;
  }

  const void* engine_;
  Context<D> context_;
  Tape<D> tape_;
  List<int> uses_;                ///< pending gradients of each parameter, then visits of each unit
  Tensor<double, 1, D> targets_;  ///< TargetCounts of the forward's batch
  List<Reported<D>> reports_;     ///< of the forward
  const void* loss_ = nullptr;    ///< address of the forward's loss; null on paper
  BatchPrint input_{};            ///< in a step that checks the ranks
  Size step_ = 0;                 ///< the engine's step of the forward, discarded ones counted
  Size numbered_ = -1;            ///< the step in which number_ was taken; -1: none
  Size number_ = 0;
  bool waits_for_backward_ = false;
  bool counts_uses_ = false;  ///< some of `uses_` may be above 0
};

}  // namespace detail

/// Its tape, its position in the random streams, its target counts, and its pending gradients. An engine has one for
/// its three verbs; pipelines may keep several in flight. Belongs to one engine, which must outlive it.
///
/// Memory   the saved activations and the batch of its forward, until its backward
template <Device D, class B = Batch<D>>
class MicroStep : detail::MicroStepState<D> {
 public:
  /// For Engine: with the engine's memory and groups, and the model's number of parameters and units.
  constexpr MicroStep(const void* engine, const Context<D>& context, int counters)
      : detail::MicroStepState<D>(engine, context, counters) {}

 private:
  template <class, class>
  friend class Engine;

  /// Keeps the batch until backward, where the host can look at it without waiting.
  constexpr void keep(const B& batch) {
    if (!detail::known_at_once<D>) return;
    batch_ = batch;
    keeps_ = true;
    digest_ = detail::digest_of(batch);
  }
  constexpr void require_same_batch() {
    if (!keeps_) return;
    // clang-format off
    require(detail::digest_of(batch_) == digest_, "dspp: backward needs the batch of its forward unchanged, but it was written in between. Refill it after backward.", ErrorCode::usage);
    // clang-format on
    forget_batch();
  }
  constexpr void forget_batch() { batch_ = {}, keeps_ = false; }
  /// Discards a forward whose backward will not run.
  constexpr void abandon() {
    detail::MicroStepState<D>::abandon();
    forget_batch();
    suspect_ = {};
  }

  B batch_{};                     ///< of the forward
  bool keeps_ = false;            ///< batch_ is set
  std::uint64_t digest_ = 0;      ///< of the batch at its forward
  detail::Suspect<B> suspect_{};  ///< the batch, if its loss may not be finite
};

}  // namespace dspp
