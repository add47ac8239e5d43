// SPDX-License-Identifier: Apache-2.0
/// Which of several sources gives each sample of a blend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#endif

namespace dspp::data {

/// Sources in proportion to their weights, the same for every seed: of the first i samples, source k gives n with
/// |n - i weight_k / sum of the weights| < 1. (Megatron's rule, the source with the largest error, exceeds 1 for some
/// weights of many sources.) Calls by several threads are allowed; copies share the index.
///
/// Cost     in ascending order of positions a few nanoseconds per source; otherwise up to 4096 times that, and all
///          samples before the first call's
/// Memory   16 bytes a source for every 4096 samples up to the last one
/// Source   Tijdeman, The chairman assignment problem (1980), section 2
class BlendOrder {
 public:
  struct Place {
    std::size_t source = 0;
    Size number = 0;  ///< of the samples of that source before it
  };

  /// Throws   Error(usage) for no weights, and for one that is not a positive number
  explicit BlendOrder(const std::vector<double>& weights);

  Place at(Size position) const;

  enum class Until { all, any };
  /// How many samples the stream has when all sources, or any of them, have given samples[k], 1 or more.
  ///
  /// Throws   Error(usage) from 2^36 on, which would take minutes to count
  Size positions_until(Until which, const std::vector<Size>& samples) const;

 private:
  struct Index;
  std::shared_ptr<Index> index_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

/// Shares are integers, so that the order depends on no rounding: source k has `behind`
/// position share_k - taken_k one, of which one sample is `one`.
struct BlendOrder::Index {
  static constexpr std::int64_t one = std::int64_t{1} << 60;
  static constexpr Size interval = 4096;
  struct State {
    std::vector<std::int64_t> behind;
    std::vector<Size> taken;
    Size position = 0;
  };

  explicit Index(const std::vector<double>& weights);
  /// Takes the next sample: of those sources that are behind by at least the slack, that whose deadline is next.
  std::size_t advance();
  void go_to(Size position);
  bool has_given(Until which, const std::vector<Size>& samples) const;
  /// At most the result of positions_until: a source has given fewer than one more than its part.
  Size at_least_until(Until which, const std::vector<Size>& samples) const;

  std::vector<std::int64_t> share;
  std::int64_t slack = 0;
  std::mutex mutex;  // of what follows
  State now;
  std::vector<std::int64_t> behind;  // every `interval` samples
  std::vector<Size> taken;
};

DSPP_INLINE BlendOrder::Index::Index(const std::vector<double>& weights) {
  require(!weights.empty(), "dspp: a blend needs a source at least, but got none. Name one.");
  const auto largest = std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    if (!(weights[k] > 0) || std::isinf(weights[k]))
      fail(ErrorCode::usage, "dspp: a blend needs weights that are positive numbers, but that of source " +
                                 std::to_string(k) + " is " + std::to_string(weights[k]) +
                                 ". Leave the source out, or change it.");
    sum += weights[k] / *largest;
  }
  std::int64_t rest = one;
  for (const double weight : weights) {
    const double part = weight / *largest / sum * static_cast<double>(one);
    share.push_back(std::max<std::int64_t>(1, std::llround(part)));
    rest -= share.back();
  }
  share[static_cast<std::size_t>(largest - weights.begin())] += rest;
  const auto sources = static_cast<std::int64_t>(weights.size());
  slack = sources > 1 ? one / (2 * sources - 2) : 0;
  now.behind.resize(weights.size()), now.taken.resize(weights.size());
}

DSPP_INLINE std::size_t BlendOrder::Index::advance() {
  std::size_t chosen = 0;
  double soonest = -1;
  for (std::size_t k = 0; k < share.size(); ++k) {
    now.behind[k] += share[k];
    if (now.behind[k] < slack) continue;
    const double deadline =
        std::max(0.0, static_cast<double>(one - slack - now.behind[k]) / static_cast<double>(share[k]));
    if (soonest < 0 || deadline < soonest) chosen = k, soonest = deadline;
  }
  now.behind[chosen] -= one;
  ++now.taken[chosen], ++now.position;
  return chosen;
}

DSPP_INLINE void BlendOrder::Index::go_to(Size position) {
  const auto sources = std::ssize(share);
  const Size known = std::ssize(taken) / sources, entry = std::min(position / interval, known - 1);
  if (known > 0 && (position < now.position || entry * interval > now.position)) {
    std::copy_n(behind.begin() + entry * sources, sources, now.behind.begin());
    std::copy_n(taken.begin() + entry * sources, sources, now.taken.begin());
    now.position = entry * interval;
  }
  while (true) {
    if (now.position % interval == 0 && now.position / interval == std::ssize(taken) / sources) {
      behind.insert(behind.end(), now.behind.begin(), now.behind.end());
      taken.insert(taken.end(), now.taken.begin(), now.taken.end());
    }
    if (now.position == position) return;
    advance();
  }
}

DSPP_INLINE bool BlendOrder::Index::has_given(Until which, const std::vector<Size>& samples) const {
  bool any = false, all = true;
  for (std::size_t k = 0; k < samples.size(); ++k) {
    const bool given = now.taken[k] >= samples[k];
    any = any || given;
    all = all && given;
  }
  return which == Until::all ? all : any;
}

DSPP_INLINE Size BlendOrder::Index::at_least_until(Until which, const std::vector<Size>& samples) const {
  std::size_t last = 0;  // the source that decides
  double positions = 0;
  for (std::size_t k = 0; k < samples.size(); ++k) {
    const double own = static_cast<double>(samples[k] - 1) * static_cast<double>(one) / static_cast<double>(share[k]);
    if (k == 0 || (which == Until::all ? own > positions : own < positions)) positions = own, last = k;
  }
  if (positions >= 0x1p36)
    fail(ErrorCode::usage, "dspp: the epoch of a blend needs fewer than 2^36 samples, but for " +
                               std::to_string(samples[last]) + " of source " + std::to_string(last) +
                               " its weight takes more. Raise the weight.");
  return std::max<Size>(0, static_cast<Size>(positions) - 1);
}

DSPP_INLINE BlendOrder::BlendOrder(const std::vector<double>& weights) : index_(std::make_shared<Index>(weights)) {}

DSPP_INLINE BlendOrder::Place BlendOrder::at(Size position) const {
  const std::lock_guard lock(index_->mutex);
  index_->go_to(position);
  const std::size_t source = index_->advance();
  return {source, index_->now.taken[source] - 1};
}

DSPP_INLINE Size BlendOrder::positions_until(Until which, const std::vector<Size>& samples) const {
  const std::lock_guard lock(index_->mutex);
  Size position = index_->at_least_until(which, samples);
  index_->go_to(position);
  while (!index_->has_given(which, samples)) index_->go_to(++position);
  return position;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
