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
#include <dspp/base/types.hpp>

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

/// The shortest of some layouts, each of which takes the blocks in an order (the largest first, those with the most
/// bytes times time, the longest used, and orders like the first two) and puts each into the smallest gap that it fits
/// in. The same for the same uses.
///
/// Cost     the square of the number of blocks: some milliseconds for 200, a second for 8,000
/// Memory   of steps of training within half a percent of most_at_once (docs/benchmarks)
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
  const auto area = [&](std::size_t i) { return time(i) * bytes(i); };
  BlockLayout best = laid_out_by(bytes);
  const auto take = [&](BlockLayout other) {
    if (other.bytes < best.bytes) best = std::move(other);
  };
  take(laid_out_by(area)), take(laid_out_by(time));
  const Size least = most_at_once(uses), count = std::ssize(uses);
  std::uint64_t random = 1;
  std::vector<double> factors(uses.size());
  for (int i = 0; i < 32 && best.bytes > least && count * count * i < (Size{1} << 26); ++i) {
    for (double& factor : factors) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      factor = 0.6 + static_cast<double>(random >> 11) * 0x1p-53;
    }
    take(i % 2 == 0 ? laid_out_by([&](auto b) { return bytes(b) * factors[b]; })
                    : laid_out_by([&](auto b) { return area(b) * factors[b]; }));
  }
  return best;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
