// SPDX-License-Identifier: Apache-2.0
/// When a rank computes on paper and when its buckets travel: how much of ZeRO's traffic computation hides.
#pragma once

#include <dspp/base/types.hpp>

namespace dspp {

/// What a device and its links do in a second. Both, or neither: then no time is asked.
struct Rates {
  double flops_per_second = 0;  ///< of the operations that a plan counts, nearly all of them products'
  double bytes_per_second = 0;  ///< that a rank receives from other replicas

  constexpr bool are_given() const { return flops_per_second > 0 && bytes_per_second > 0; }
};

/// One step of one rank, in seconds at given rates. An estimate: what counts no operations takes no time, and links
/// are as fast whoever sends.
struct StepSeconds {
  double computing = 0;
  double moving = 0;   ///< what ZeRO moves, one after the other
  double waiting = 0;  ///< of computation, for what it moves

  constexpr double step() const { return computing + waiting; }
  /// The share of `moving` that runs beside computation; 1 if nothing moves.
  constexpr double hidden() const { return moving > 0 ? 1 - waiting / moving : 1; }
  /// The largest share that a schedule could hide: as much as there is computation.
  constexpr double hideable() const { return moving > computing ? computing / moving : 1; }
  friend constexpr StepSeconds operator-(const StepSeconds& a, const StepSeconds& b) {
    return {a.computing - b.computing, a.moving - b.moving, a.waiting - b.waiting};
  }
};

/// A link on which one operation follows another, beside a rank that counts operations.
class OverlapClock {
 public:
  constexpr OverlapClock() = default;
  constexpr explicit OverlapClock(const Rates& rates) : rates_(rates) {}

  /// An operation that begins when `flops` were done; when it ends.
  constexpr double begin(double flops, Size bytes) {
    const double seconds = static_cast<double>(bytes) / rates_.bytes_per_second, now = at(flops);
    link_free_ = (link_free_ > now ? link_free_ : now) + seconds;
    moving_ += seconds;
    return link_free_;
  }
  /// Computation goes on at `end`.
  constexpr void wait(double flops, double end) {
    if (end > at(flops)) waiting_ += end - at(flops);
  }
  constexpr StepSeconds seconds(double flops) const { return {flops / rates_.flops_per_second, moving_, waiting_}; }

 private:
  constexpr double at(double flops) const { return flops / rates_.flops_per_second + waiting_; }

  Rates rates_{};
  double link_free_ = 0, moving_ = 0, waiting_ = 0;
};

}  // namespace dspp
