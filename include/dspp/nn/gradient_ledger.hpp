// SPDX-License-Identifier: Apache-2.0
/// What becomes of a unit's gradients in one step: expected by forward, written by backward, reduced.
#pragma once

#include <utility>

#include <dspp/base/list.hpp>

namespace dspp {

/// What a parameter's gradients are over Tp: all alike, or they could not be added.
enum class UsesOverTp { none, whole, partial };

/// The micro-step that runs: of each parameter, by its number in the model, how many gradients its forward has promised
/// that its backward has not brought yet.
struct CurrentMicroStep {
  int* uses = nullptr;
};

/// A bucket's gradients between two reductions.
struct GradientRound {
  int parameters = 0;
  int number = 1;      ///< a reduction begins the next one
  int unfinished = 0;  ///< parameters whose last gradient has not come
  int pass = 0;        ///< the backward that they are counted in
  int turn = 1;        ///< of rounds and passes
};

/// A parameter's gradient.
struct GradientEntry {
  GradientRound* round = nullptr;
  int written = 0;   ///< the round that it was last written in
  int finished = 0;  ///< the turn that it was last finished in
  UsesOverTp uses = UsesOverTp::none;

  /// It holds something that is not reduced yet.
  constexpr bool is_written() const { return written == round->number; }
  constexpr void write() { written = round->number; }
};

/// The gradients of a unit's parameters, and of its buckets. What restarts has a number, so that nothing is reset
/// one by one.
///
///   expected   uses that forward noted: CurrentMicroStep
///   written    the parameter's gradient holds something that is not reduced yet
///   finished   its last expected gradient has come in this backward, since its bucket was last reduced
class GradientLedger {
 public:
  /// Room for so many parameters: what the handles point to stays where it is.
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

  /// The parameter's last gradient has come. Returns whether it was the last parameter of its bucket. Recomputed
  /// regions that share a parameter finish it once each: the first counts.
  constexpr bool finish(GradientEntry& entry) {
    GradientRound& round = *entry.round;
    if (round.pass != pass_) {
      round.pass = pass_, ++round.turn;
      round.unfinished = round.parameters;
    }
    return std::exchange(entry.finished, round.turn) != round.turn && --round.unfinished == 0;
  }
  /// All of the bucket's parameters have finished.
  constexpr bool complete(std::size_t bucket) const {
    return rounds_[bucket].unfinished == 0 && rounds_[bucket].pass == pass_;
  }
  /// The bucket is reduced, or its gradients are dropped: their count restarts.
  constexpr void begin_round(std::size_t bucket) {
    GradientRound& round = rounds_[bucket];
    ++round.number, ++round.turn;
    round.unfinished = round.parameters;
  }
  /// A backward begins: no gradient of its own has come. What was written stays.
  constexpr void begin_pass() { ++pass_; }
  /// The step is over, or dropped.
  constexpr void begin_step() {
    for (std::size_t b = 0; b < rounds_.size(); ++b) begin_round(b);
  }

 private:
  List<GradientEntry> entries_;
  List<GradientRound> rounds_;
  int pass_ = 0;
};

}  // namespace dspp
