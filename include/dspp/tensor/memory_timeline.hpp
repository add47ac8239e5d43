// SPDX-License-Identifier: Apache-2.0
/// The blocks of a stretch of a program as data: what each is, when it is in use, and where it lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dspp/tensor/block.hpp>

namespace dspp {

/// A block and the events at which it was taken and given back, by number from 0: after event e it is in use if
/// begin <= e < end.
struct TimedBlock {
  std::string label{};  ///< the requester
  Category category = Category::activations;
  Size bytes = 0;
  Size begin = 0;    ///< -1: in use before the first event
  Size end = 0;      ///< the number of events: in use after the last
  Size offset = -1;  ///< in the region of steps (tensor/pool_steps.hpp); -1: it lies elsewhere, or on paper
};

/// What a memory gave out between begin_timeline() and end_timeline(), of a Pool, or of a plan's Ledger
/// (plan/timeline.hpp). Each request is an event, and each return.
struct MemoryTimeline {
  std::vector<TimedBlock> blocks{};  ///< first those in use before, then the others; both in the order of requests
  std::vector<Size> live{};          ///< bytes in use after each event, as the memory itself counts them
  Size before = 0;                   ///< the same before the first
  Size step_begin = 0;               ///< the events from here to before step_end are those of the first step
  Size step_end = 0;                 ///< step_begin: no step ended
  Size region = 0;                   ///< bytes of the region; 0: no block lay in one
  bool is_whole = true;              ///< false: there were more events than are kept

  Size events() const { return std::ssize(live); }
  /// The most bytes in use at a time.
  Size peak() const;
  /// The sum of the blocks in use after each event: `live`, if nothing is missing.
  std::vector<Size> live_of_blocks() const;
};

/// Notes events for a timeline, up to a number of them.
///
/// Cost     a look-up for each event
/// Memory   8 bytes an event, and about 150 a block
class MemoryRecorder {
 public:
  explicit MemoryRecorder(std::size_t most_events) : most_events_(most_events) {}

  /// A block in use before the first event.
  template <class Memory>
  void found(const MemoryBlock<Memory>& block, Size offset = -1) noexcept {
    add({&block, block.label, block.category, block.bytes, offset}, nullptr);
  }
  /// `live`: bytes in use, the block's included.
  template <class Memory>
  void taken(const MemoryBlock<Memory>& block, Size live, Size offset = -1) noexcept {
    add({&block, block.label, block.category, block.bytes, offset}, &live);
  }
  void given(const void* block, Size live) noexcept;
  /// A block lies in a region of so many bytes.
  void has_region(Size bytes) noexcept { timeline_.region = std::max(timeline_.region, bytes); }
  /// A step begins, if none is under way, and ends, or is given up: the first that ends is noted.
  void begin_step() noexcept {
    if (step_begin_ < 0) step_begin_ = timeline_.events();
  }
  void end_step() noexcept {
    if (step_begin_ < 0 || timeline_.step_end > timeline_.step_begin) return;
    timeline_.step_begin = step_begin_, timeline_.step_end = timeline_.events();
  }
  void abandon_step() noexcept {
    if (timeline_.step_end == timeline_.step_begin) step_begin_ = -1;
  }
  /// Begins here: what was given back is forgotten.
  void begin(Size live);
  /// Ends it.
  MemoryTimeline timeline() &&;

 private:
  struct Noted {
    const void* block;
    const char* label;
    Category category;
    Size bytes, offset;
  };
  void add(const Noted& noted, const Size* live) noexcept;
  bool has_room() noexcept { return timeline_.is_whole = timeline_.is_whole && timeline_.live.size() < most_events_; }

  std::size_t most_events_;
  Size step_begin_ = -1;
  MemoryTimeline timeline_;
  std::unordered_map<const void*, std::size_t> in_use_;  // by block, its place in the timeline
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Size MemoryTimeline::peak() const {
  return live.empty() ? before : std::max(before, *std::max_element(live.begin(), live.end()));
}

DSPP_INLINE std::vector<Size> MemoryTimeline::live_of_blocks() const {
  std::vector<Size> sums(live.size() + 1);
  for (const TimedBlock& block : blocks) {
    sums[static_cast<std::size_t>(std::max<Size>(block.begin, 0))] += block.bytes;
    sums[static_cast<std::size_t>(block.end)] -= block.bytes;
  }
  sums.pop_back();
  for (std::size_t i = 1; i < sums.size(); ++i) sums[i] += sums[i - 1];
  return sums;
}

DSPP_INLINE void MemoryRecorder::add(const Noted& noted, const Size* live) noexcept {
  if (!has_room()) return;
  const Size begin = live ? timeline_.events() : -1;
  try {
    if (live) timeline_.live.push_back(*live);
    in_use_[noted.block] = timeline_.blocks.size();
    timeline_.blocks.push_back({noted.label, noted.category, noted.bytes, begin, begin, noted.offset});
  } catch (const std::bad_alloc&) {
    in_use_.erase(noted.block);
    timeline_.is_whole = false;
  }
}

DSPP_INLINE void MemoryRecorder::given(const void* block, Size live) noexcept {
  const auto place = in_use_.find(block);
  if (!has_room() || place == in_use_.end()) return;
  try {
    timeline_.live.push_back(live);
  } catch (const std::bad_alloc&) {
    timeline_.is_whole = false;
    return;
  }
  timeline_.blocks[place->second].end = timeline_.events() - 1;
  in_use_.erase(place);
}

DSPP_INLINE void MemoryRecorder::begin(Size live) {
  std::vector<std::pair<std::size_t, const void*>> places;
  for (const auto& [block, place] : in_use_) places.emplace_back(place, block);
  std::sort(places.begin(), places.end());
  MemoryTimeline old = std::exchange(timeline_, {});
  step_begin_ = -1;
  timeline_.before = live, timeline_.region = old.region, timeline_.is_whole = old.is_whole;
  for (const auto& [place, block] : places) {
    in_use_[block] = timeline_.blocks.size();
    timeline_.blocks.push_back(std::move(old.blocks[place]));
    timeline_.blocks.back().begin = -1;
  }
}

DSPP_INLINE MemoryTimeline MemoryRecorder::timeline() && {
  for (const auto& [block, place] : in_use_) timeline_.blocks[place].end = timeline_.events();
  in_use_.clear();
  return std::move(timeline_);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
