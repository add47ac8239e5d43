// SPDX-License-Identifier: Apache-2.0
/// How long transfers are under way, and how much of it beside kernels: of spans that come in no order.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include <dspp/base/config.hpp>

namespace dspp::detail {

/// Goes through time once. Spans are in nanoseconds.
///
/// Memory   what begins or ends after the time that it has come to
class OverlapSweep {
 public:
  enum Kind { transfer, kernel, wait };

  void add(Kind kind, std::int64_t begin, std::int64_t end) { ++changes_[begin][kind], --changes_[end][kind]; }
  /// All spans that begin before `until` were added.
  void advance(std::int64_t until) {
    for (auto next = changes_.begin(); next != changes_.end() && next->first <= until; next = changes_.erase(next)) {
      pass(next->first);
      for (std::size_t kind = 0; kind < under_way_.size(); ++kind) under_way_[kind] += next->second[kind];
    }
    if (now_ < until) pass(until);
  }

  /// Of the time until then, each moment once: with transfers; of it, with kernels; of it, with waits and no kernel.
  std::int64_t moving() const { return moving_; }
  std::int64_t hidden() const { return hidden_; }
  std::int64_t exposed() const { return exposed_; }

 private:
  void pass(std::int64_t to) {
    const std::int64_t passed = to - now_;
    now_ = to;
    if (under_way_[transfer] == 0) return;
    moving_ += passed;
    if (under_way_[kernel] > 0)
      hidden_ += passed;
    else if (under_way_[wait] > 0)
      exposed_ += passed;
  }

  std::map<std::int64_t, std::array<int, 3>> changes_;
  std::array<int, 3> under_way_{};
  std::int64_t now_ = 0, moving_ = 0, hidden_ = 0, exposed_ = 0;
};

}  // namespace dspp::detail
