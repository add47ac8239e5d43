// SPDX-License-Identifier: Apache-2.0
/// The members of Pool that note when blocks are in use: see tensor/memory_timeline.hpp.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <dspp/tensor/pool.hpp>

#if DSPP_HAS_DEFINITIONS()

namespace dspp {

DSPP_INLINE void Pool::begin_timeline(std::size_t most_events) {
  recorder_ = std::make_unique<MemoryRecorder>(most_events);
  std::vector<const Block*> blocks;
  for (const MemoryBlock<Pool>* block = first_; block; block = block->next)
    blocks.push_back(static_cast<const Block*>(block));
  for (; !blocks.empty(); blocks.pop_back()) {
    recorder_->found(*blocks.back(), blocks.back()->offset);
    if (blocks.back()->offset >= 0) recorder_->has_region(region());
  }
  recorder_->begin(live_total_);
}

DSPP_INLINE MemoryTimeline Pool::end_timeline() {
  const std::unique_ptr<MemoryRecorder> recorder = std::move(recorder_);
  return recorder ? std::move(*recorder).timeline() : MemoryTimeline{};
}

DSPP_INLINE void Pool::note_taken(const Block& block) noexcept {
  recorder_->taken(block, live_total_, block.offset);
  if (block.offset >= 0) recorder_->has_region(region());
}

}  // namespace dspp

#endif  // DSPP_HAS_DEFINITIONS()
