// SPDX-License-Identifier: Apache-2.0
/// One micro-step under way: what lies between its forward and its backward.
#pragma once

#include <cstdint>

#include <dspp/autograd/tape.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/rank_check.hpp>
#include <dspp/engine/step_targets.hpp>
#include <dspp/nn/gradient_ledger.hpp>

namespace dspp {

/// Its tape, its position in the random streams, what its targets count, and the gradients that it still expects. An
/// engine has one for its three verbs; several may be under way, as pipelines need, each with its own. Belongs to one
/// engine, which must outlive it.
///
/// Memory   what its forward saves, until its backward
template <Device D>
class MicroStep {
 public:
  /// For Engine: with the engine's memory and groups, for a model of so many parameters.
  constexpr MicroStep(const void* engine, const Context<D>& context, int parameters)
      : engine_(engine), context_(context), tape_(context_) {
    resize(parameters);
  }
  MicroStep(const MicroStep&) = delete;
  MicroStep& operator=(const MicroStep&) = delete;

 private:
  template <class, class>
  friend class Engine;

  constexpr void resize(int parameters) { uses_.resize(static_cast<std::size_t>(parameters)); }
  /// Forgets a forward whose backward will not come.
  constexpr void abandon() {
    tape_.clear();
    waits_for_backward_ = false;
    if (!counts_uses_) return;
    for (int& pending : uses_) pending = 0;
    counts_uses_ = false;
  }

  const void* engine_;
  Context<D> context_;
  Tape<D> tape_;
  List<int> uses_;                        ///< of each parameter: gradients that are still expected
  TargetCounts targets_{};                ///< of the forward's batch
  double mean_ = 0;                       ///< its loss
  const void* loss_ = nullptr;            ///< where the forward's loss lies; null on paper
  detail::Suspect<D> suspect_{};          ///< the batch, if the loss was not finite
  typename RankCheck<D>::Input input_{};  ///< of a step that checks the ranks
  Size step_ = 0;                         ///< of the engine, those dropped counted: a forward serves in its own
  bool waits_for_backward_ = false;
  bool counts_uses_ = false;  ///< some of `uses_` may not be 0
};

}  // namespace dspp
