// SPDX-License-Identifier: Apache-2.0
/// The states of a unit's gradients in one step: expected by forward, written by backward, reduced.
#pragma once

#include <utility>

#include <dspp/base/list.hpp>

namespace dspp {

/// The placement of a parameter's gradients over Tp: the same for all uses, so that they can be added.
enum class UsesOverTp { none, whole, partial };

/// The running micro-step: the pending gradients of each parameter, by its number in the model: those its forward
/// recorded and its backward has not written. Of each unit, by its number: the visits of its forward that its backward
/// has not left.
struct CurrentMicroStep {
  int* uses = nullptr;
  int* visits = nullptr;
};

/// A bucket's gradients between two reductions.
struct GradientRound {
  int parameters = 0;
  int number = 1;      ///< incremented by each reduction
  int unfinished = 0;  ///< parameters whose last gradient is not written
  int pass = 0;        ///< the backward that counts them
  int turn = 1;        ///< incremented by each round and pass
};

/// A parameter's gradient.
struct GradientEntry {
  GradientRound* round = nullptr;
  int written = 0;   ///< the round of the last write
  int finished = 0;  ///< the turn of the last finish
  UsesOverTp uses = UsesOverTp::none;

  /// True if it holds an unreduced gradient.
  constexpr bool is_written() const { return written == round->number; }
  constexpr void write() { written = round->number; }
};

/// The gradients of a unit's parameters and buckets. Rounds and passes are numbered, so that entries need no reset.
///
///   expected   uses recorded by forward: CurrentMicroStep
///   written    the parameter holds an unreduced gradient
///   finished   its last expected gradient was written in this backward, since its bucket was last reduced
class GradientLedger {
 public:
  /// Reserves memory, so that the pointers from add() stay valid.
  constexpr void reserve(std::size_t parameters) {
    entries_.reserve(parameters);
    rounds_.reserve(parameters);
  }
  /// Adds a parameter to the last bucket, or to a new one.
  constexpr GradientEntry* add(bool new_bucket) {
    if (new_bucket) rounds_.push_back(GradientRound{});
    GradientRound& round = rounds_.back();
    ++round.parameters, ++round.unfinished;
    entries_.push_back(GradientEntry{&round});
    return &entries_.back();
  }

  /// Records the parameter's last gradient. Returns true if it was the last parameter of its bucket. Recomputed regions
  /// that share a parameter finish it once each: only the first counts.
  constexpr bool finish(GradientEntry& entry) {
    GradientRound& round = *entry.round;
    if (round.pass != pass_) {
      round.pass = pass_, ++round.turn;
      round.unfinished = round.parameters;
    }
    return std::exchange(entry.finished, round.turn) != round.turn && --round.unfinished == 0;
  }
  /// True if all of the bucket's parameters have finished.
  constexpr bool complete(std::size_t bucket) const {
    return rounds_[bucket].unfinished == 0 && rounds_[bucket].pass == pass_;
  }
  /// Restarts the counts of a bucket that is reduced or whose gradients are discarded.
  constexpr void begin_round(std::size_t bucket) {
    GradientRound& round = rounds_[bucket];
    ++round.number, ++round.turn;
    round.unfinished = round.parameters;
  }
  /// Begins a backward: none of its gradients are written yet. Earlier ones stay.
  constexpr void begin_pass() { ++pass_; }
  /// Ends or discards the step.
  constexpr void begin_step() {
    for (std::size_t b = 0; b < rounds_.size(); ++b) begin_round(b);
  }

 private:
  List<GradientEntry> entries_;
  List<GradientRound> rounds_;
  int pass_ = 0;
};

}  // namespace dspp
