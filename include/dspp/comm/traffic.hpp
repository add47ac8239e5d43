// SPDX-License-Identifier: Apache-2.0
/// What a communicator moved: bytes and calls by collective and purpose.
#pragma once

#include <cstddef>

#include <dspp/base/types.hpp>

namespace dspp {

enum class Collective { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, barrier };
inline constexpr int collective_count = 7;

enum class Purpose {
  activation,
  parameter,
  gradient,
  replicated_gradient,  ///< gradients of parameters that are Partial over Tp, coalesced before the step
  scalar,               ///< loss, norm, overflow
  checkpoint,
  /// Comparison of state between ranks: at the start, at each load, and every EngineConfig::check_ranks steps; and
  /// ZenFlow's selections.
  check,
  update,  ///< updates of matrices, which an optimizer needs whole
};
inline constexpr int purpose_count = 8;

constexpr const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::all_to_all: return "all_to_all";
    case Collective::broadcast: return "broadcast";
    case Collective::send: return "send";
    case Collective::barrier: return "barrier";
  }
  return "?";
}

constexpr const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::activation: return "activation";
    case Purpose::parameter: return "parameter";
    case Purpose::gradient: return "gradient";
    case Purpose::replicated_gradient: return "replicated_gradient";
    case Purpose::scalar: return "scalar";
    case Purpose::checkpoint: return "checkpoint";
    case Purpose::check: return "check";
    case Purpose::update: return "update";
  }
  return "?";
}

/// What one rank moved: the bytes that it read from other ranks, and the calls, by collective and purpose. Literal,
/// comparable, addable; the difference of two snapshots is the traffic between them.
class Traffic {
 public:
  struct Entry {
    Size bytes = 0;
    Size calls = 0;
    friend constexpr bool operator==(const Entry&, const Entry&) = default;
  };

  /// Adds one call that moved `bytes`.
  constexpr void count(Collective collective, Purpose purpose, Size bytes) {
    Entry& e = entries_[place(collective, purpose)];
    e.bytes += bytes;
    e.calls += 1;
  }

  constexpr Size bytes(Collective collective, Purpose purpose) const {
    return entries_[place(collective, purpose)].bytes;
  }
  constexpr Size calls(Collective collective, Purpose purpose) const {
    return entries_[place(collective, purpose)].calls;
  }
  constexpr Size bytes(Collective collective) const { return sum_over_purposes(collective).bytes; }
  constexpr Size calls(Collective collective) const { return sum_over_purposes(collective).calls; }

  constexpr Size bytes(Purpose purpose) const {
    Size sum = 0;
    for (int c = 0; c < collective_count; ++c) sum += bytes(static_cast<Collective>(c), purpose);
    return sum;
  }

  /// The traffic of this purpose, and of all others.
  constexpr Traffic only(Purpose purpose) const {
    Traffic result;
    for (int c = 0; c < collective_count; ++c) {
      const std::size_t at = place(static_cast<Collective>(c), purpose);
      result.entries_[at] = entries_[at];
    }
    return result;
  }
  constexpr Traffic without(Purpose purpose) const {
    Traffic result = *this;
    return result -= only(purpose);
  }

  /// Bytes of all traffic.
  constexpr Size total() const {
    Size sum = 0;
    for (const Entry& e : entries_) sum += e.bytes;
    return sum;
  }

  constexpr Traffic& operator+=(const Traffic& other) {
    for (int i = 0; i < kinds; ++i) {
      entries_[i].bytes += other.entries_[i].bytes;
      entries_[i].calls += other.entries_[i].calls;
    }
    return *this;
  }

  constexpr Traffic& operator-=(const Traffic& other) {
    for (int i = 0; i < kinds; ++i) {
      entries_[i].bytes -= other.entries_[i].bytes;
      entries_[i].calls -= other.entries_[i].calls;
    }
    return *this;
  }

  friend constexpr Traffic operator+(Traffic a, const Traffic& b) { return a += b; }
  friend constexpr Traffic operator-(Traffic a, const Traffic& b) { return a -= b; }
  friend constexpr bool operator==(const Traffic&, const Traffic&) = default;

 private:
  static constexpr std::size_t place(Collective collective, Purpose purpose) {
    return static_cast<std::size_t>(static_cast<int>(collective) * purpose_count + static_cast<int>(purpose));
  }

  constexpr Entry sum_over_purposes(Collective collective) const {
    Entry sum;
    for (int p = 0; p < purpose_count; ++p) {
      const Entry& e = entries_[place(collective, static_cast<Purpose>(p))];
      sum.bytes += e.bytes;
      sum.calls += e.calls;
    }
    return sum;
  }

  static constexpr int kinds = collective_count * purpose_count;
  Entry entries_[kinds]{};  // not std::array, whose every access counts as a call in constant expressions
};

}  // namespace dspp
