// SPDX-License-Identifier: Apache-2.0
/// What holds for the timeline of every memory.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <dspp/tensor/memory_timeline.hpp>

namespace dspp::laws {

/// Pairs of blocks in use at the same time that have bytes of the region in common, and blocks outside of it.
inline Size misplaced(const MemoryTimeline& timeline) {
  Size wrong = 0;
  const std::vector<TimedBlock>& blocks = timeline.blocks;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const TimedBlock& a = blocks[i];
    if (a.offset < 0) continue;
    wrong += a.offset + a.bytes > timeline.region;
    for (std::size_t j = 0; j < i; ++j) {
      const TimedBlock& b = blocks[j];
      const bool at_once = a.begin < b.end && b.begin < a.end;
      wrong += b.offset >= 0 && at_once && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
    }
  }
  return wrong;
}

/// Each event begins or ends one block, in the order of requests; what is in use adds up; places are apart.
inline void check_timeline(const MemoryTimeline& timeline) {
  CHECK(timeline.is_whole);
  CHECK(timeline.live == timeline.live_of_blocks());
  CHECK(misplaced(timeline) == 0);
  Size before = 0, last = -1, out_of_order = 0;
  std::vector<int> happens(timeline.live.size());
  for (const TimedBlock& block : timeline.blocks) {
    if (block.begin < 0) before += block.bytes;
    out_of_order += block.begin < 0 ? last >= 0 : block.begin <= last;
    out_of_order += block.end <= block.begin || block.end > timeline.events();
    last = block.begin;
    if (block.begin >= 0) ++happens[static_cast<std::size_t>(block.begin)];
    if (block.end < timeline.events()) ++happens[static_cast<std::size_t>(block.end)];
  }
  CHECK(out_of_order == 0);
  CHECK(before == timeline.before);
  CHECK(std::count(happens.begin(), happens.end(), 1) == timeline.events());
}

}  // namespace dspp::laws
