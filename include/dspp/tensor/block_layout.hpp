// SPDX-License-Identifier: Apache-2.0
/// Where the blocks of a step lie in one region of memory, when it is known how long each is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <dspp/base/config.hpp>

namespace dspp {

/// A block that is used from one time to another, at which it is not any more.
struct BlockUse {
  static constexpr Size still_used = std::numeric_limits<Size>::max();
  Size begin = 0, end = still_used, bytes = 0;

  constexpr bool overlaps(const BlockUse& other) const { return begin < other.end && other.begin < end; }
};

/// The offsets of blocks, in the order of their uses, and the bytes of the region: none of two that are used at the
/// same time overlaps another.
struct BlockLayout {
  std::vector<Size> offsets;
  Size bytes = 0;
};

/// The most bytes in use at a time: no layout takes less.
Size most_at_once(const std::vector<BlockUse>& uses);

/// The shortest of three layouts, each of which takes the blocks in an order (the largest first, those with the most
/// bytes times time, the longest used) and puts each into the smallest gap that it fits in.
///
/// Cost     the square of the number of blocks: a tenth of a second for 5,000
/// Memory   of steps of training within a few percent of most_at_once (docs/benchmarks)
/// Source   Pisarchyk and Lee 2020, arXiv:2001.03288 (greedy by size)
BlockLayout lay_out(const std::vector<BlockUse>& uses);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Size most_at_once(const std::vector<BlockUse>& uses) {
  struct Change {
    Size at, bytes;
  };
  std::vector<Change> changes;
  changes.reserve(2 * uses.size());
  for (const BlockUse& use : uses) changes.push_back({use.begin, use.bytes}), changes.push_back({use.end, -use.bytes});
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.at != b.at ? a.at < b.at : a.bytes < b.bytes;  // what ends makes room for what begins
  });
  Size now = 0, most = 0;
  for (const Change& change : changes) most = std::max(most, now += change.bytes);
  return most;
}

namespace detail {
DSPP_INLINE BlockLayout lay_out_in_order(const std::vector<BlockUse>& uses, const std::vector<std::size_t>& order) {
  BlockLayout layout{std::vector<Size>(uses.size(), 0), 0};
  std::vector<std::size_t> placed;  // by offset
  placed.reserve(uses.size());
  for (const std::size_t i : order) {
    const BlockUse& use = uses[i];
    Size end = 0, best = -1, smallest = std::numeric_limits<Size>::max();
    for (const std::size_t other : placed) {
      if (!use.overlaps(uses[other])) continue;
      const Size gap = layout.offsets[other] - end;
      if (gap >= use.bytes && gap < smallest) smallest = gap, best = end;
      end = std::max(end, layout.offsets[other] + uses[other].bytes);
    }
    const Size at = layout.offsets[i] = best >= 0 ? best : end;
    layout.bytes = std::max(layout.bytes, at + use.bytes);
    const auto after = std::upper_bound(placed.begin(), placed.end(), at,
                                        [&](Size offset, std::size_t other) { return offset < layout.offsets[other]; });
    placed.insert(after, i);
  }
  return layout;
}
}  // namespace detail

DSPP_INLINE BlockLayout lay_out(const std::vector<BlockUse>& uses) {
  std::vector<std::size_t> order(uses.size());
  const auto time = [&](std::size_t i) {
    return static_cast<double>(uses[i].end) - static_cast<double>(uses[i].begin);
  };
  const auto bytes = [&](std::size_t i) { return static_cast<double>(uses[i].bytes); };
  const auto laid_out_by = [&](auto value_of) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return value_of(a) > value_of(b); });
    return detail::lay_out_in_order(uses, order);
  };
  BlockLayout best = laid_out_by(bytes);
  for (BlockLayout other : {laid_out_by([&](auto i) { return time(i) * bytes(i); }), laid_out_by(time)})
    if (other.bytes < best.bytes) best = std::move(other);
  return best;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
