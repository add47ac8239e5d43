// SPDX-License-Identifier: Apache-2.0
/// The members of Pool that give the blocks of steps places in one region.
///
/// A step's requests and returns are noted. After the first step, or before it where they are planned, and again when
/// two steps were alike that the region does not fit, each block that was returned within its step gets a slot: a place
/// in the region that no block has which is in use at the same time (block_layout.hpp). In the steps from there on, the
/// n-th request gets the n-th slot if it has its bytes, and if nothing that is in use overlaps it: a block may be kept
/// longer than it was. A few requests may come besides. After more the step is unlike the others, and the region is
/// given back after it. What has no slot, or comes between steps, is served as without a region, and in its gaps where
/// the Pool would take more than it may.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <dspp/tensor/pool.hpp>

#if DSPP_HAS_DEFINITIONS()

namespace dspp {

DSPP_INLINE void Pool::lay_out_steps(bool on) {
  if (!steps_) steps_ = std::make_unique<Steps>();
  steps_->is_on = on;
  if (!on) drop_region();
}

DSPP_INLINE void Pool::lay_out_next(const MemoryTimeline& planned) {
  if (!steps_) lay_out_steps(!detail::guards_single_blocks);
  const Steps& steps = *steps_;
  if (!steps.is_on || steps.is_under_way || steps.region || traces_ > 0 || !planned.is_whole) return;
  std::vector<BlockUse> uses;
  std::vector<Size> events;  // of blocks requested in the step, as a step counts them
  for (const TimedBlock& block : planned.blocks) {
    if (block.begin < planned.step_begin || block.begin >= planned.step_end) continue;
    const bool is_returned = block.end < planned.step_end;
    uses.push_back({block.begin, is_returned ? block.end : BlockUse::still_used, block.bytes});
    events.push_back(block.begin);
    if (is_returned) events.push_back(block.end);
  }
  std::sort(events.begin(), events.end());
  const auto counted = [&](Size event) {
    return static_cast<Size>(std::lower_bound(events.begin(), events.end(), event) - events.begin());
  };
  for (BlockUse& use : uses) {
    use.begin = counted(use.begin);
    if (use.end != BlockUse::still_used) use.end = counted(use.end);
  }
  std::vector<BlockUse> beside;  // that will be taken, too
  for (const BlockUse& use : uses)
    if (!Steps::may_have_slot(use)) beside.push_back(use);
  make_region(uses, std::max(peak_, planned.peak()), most_at_once(beside));
}

DSPP_INLINE void Pool::lend_region(bool on) {
  if (steps_) steps_->is_lent = on;
}

DSPP_INLINE void Pool::begin_step() {
  if (!steps_) lay_out_steps(!detail::guards_single_blocks);
  if (recorder_) recorder_->begin_step();
  Steps& steps = *steps_;
  if (!steps.is_on || steps.is_under_way || traces_ > 0) return;
  if (std::exchange(steps.taken_between, 0) > steps.bytes / 8 && steps.region) trim_kept();  // of an evaluation
  steps.is_under_way = true, steps.is_unlike = false;
  steps.is_in_lockstep = steps.region && steps.used == 0;
  ++steps.number;
  steps.now = steps.unlike = steps.refused = 0, steps.next = 0, steps.peak = 0;
  steps.uses.clear();
}

DSPP_INLINE void Pool::abandon_step() noexcept {
  if (recorder_) recorder_->abandon_step();
  if (steps_) steps_->is_under_way = false;
}

DSPP_INLINE void Pool::end_step() noexcept {
  if (recorder_) recorder_->end_step();
  if (!steps_ || !steps_->is_under_way) return;
  steps_->is_under_way = false;
  try {
    note_step();
  } catch (const std::bad_alloc&) {  // a step without a region
    steps_->before.clear();
    steps_->layouts = 0;
  }
}

DSPP_INLINE void Pool::note_step() {
  Steps& steps = *steps_;
  const bool is_first = steps.before.empty();
  bool is_as_before = steps.before.size() == steps.uses.size();
  for (std::size_t i = 0; is_as_before && i < steps.uses.size(); ++i)
    is_as_before = steps.before[i] == steps.uses[i].bytes;
  if (!is_as_before) steps.layouts = 0;
  steps.before.clear();
  for (const BlockUse& use : steps.uses) steps.before.push_back(use.bytes);
  const bool is_whole = steps.next + static_cast<std::size_t>(Steps::most_unlike) >= steps.slots.size();
  const bool fits = steps.unlike == 0 && steps.refused == 0 && is_whole;
  const Size peak = std::max(peak_, steps.peak);
  if (limit_ == 0 && !fits) make_room(0, reserved_at_most(peak));  // of a step, or a plan, that was another
  if ((steps.region && fits) || steps.layouts == Steps::most_layouts) return;
  if (steps.region && (steps.is_unlike || is_as_before)) drop_region();
  if (steps.region || !(is_first || is_as_before)) return;
  ++steps.layouts;
  make_region(steps.uses, peak);
}

/// More than a step may have, or no memory to note it: the step has no end.
DSPP_INLINE void Pool::note_use(Block* block, Size bytes) noexcept {
  Steps& steps = *steps_;
  try {
    if (steps.uses.size() == Steps::most_uses) return abandon_step();
    steps.uses.push_back({.begin = steps.now++, .bytes = bytes});
  } catch (const std::bad_alloc&) {
    return abandon_step();
  }
  steps.peak = std::max(steps.peak, live_total_ + bytes);
  block->step = steps.number, block->request = steps.uses.size() - 1;
}

DSPP_INLINE void Pool::note_return(const Block* block) noexcept {
  Steps& steps = *steps_;
  if (block->step != steps.number) return;
  if (steps.is_in_lockstep) steps.is_in_lockstep = steps.slots[block->request].use.end == steps.now;
  steps.uses[block->request].end = steps.now++;
}

/// Of a request while there is a region; null: it is served otherwise.
DSPP_INLINE Pool::Block* Pool::take_next_slot(Size bytes) noexcept {
  Steps& steps = *steps_;
  if (!steps.is_under_way || steps.is_unlike) return nullptr;
  if (steps.next < steps.slots.size() && steps.slots[steps.next].use.bytes == bytes) {
    steps.is_in_lockstep = steps.is_in_lockstep && steps.slots[steps.next].use.begin == steps.now;
    return take_slot(steps.next++);
  }
  steps.is_in_lockstep = false;
  steps.is_unlike = ++steps.unlike > Steps::most_unlike;
  return nullptr;
}

DSPP_INLINE Pool::Block* Pool::take_slot(std::size_t slot) noexcept {
  Steps& steps = *steps_;
  Steps::Slot& own = steps.slots[slot];
  if (own.offset == Steps::elsewhere) return nullptr;
  const auto is_over = [&](Size offset, Size bytes) {
    return offset < own.offset + own.use.bytes && own.offset < offset + bytes;
  };
  bool is_free = true;
  if (!steps.is_in_lockstep) {
    for (const std::uint32_t other : steps.in_use)
      is_free = is_free && !is_over(steps.slots[other].offset, steps.slots[other].use.bytes);
    for (const Block* guest : steps.guests) is_free = is_free && !is_over(guest->offset, guest->bytes);
  }
  if (!is_free) {
    ++steps.refused;
    steps.is_in_lockstep = false;
    return nullptr;
  }
  own.in_use = static_cast<std::int32_t>(steps.in_use.size());
  steps.in_use.push_back(static_cast<std::uint32_t>(slot));  // there is room
  ++steps.used;
  own.block.data = steps.region + own.offset;
  own.block.offset = own.offset, own.block.slot = static_cast<std::int32_t>(slot);
  return &own.block;
}

/// In the last gap of the region that it fits in, where the fewest slots are, or nullptr.
DSPP_INLINE Pool::Block* Pool::take_as_guest(Size bytes) noexcept {
  if (!steps_ || !steps_->region || traces_ > 0 || bytes == 0) return nullptr;
  Steps& steps = *steps_;
  try {
    std::vector<std::pair<Size, Size>> taken;
    for (const std::uint32_t slot : steps.in_use)
      taken.emplace_back(steps.slots[slot].offset, steps.slots[slot].offset + steps.slots[slot].use.bytes);
    for (const Block* guest : steps.guests) taken.emplace_back(guest->offset, guest->offset + guest->bytes);
    std::sort(taken.rbegin(), taken.rend());  // they do not overlap
    Size end = steps.bytes;
    for (const auto& [first, last] : taken) {
      if ((end - bytes) / Steps::alignment * Steps::alignment >= last && end >= bytes) break;
      end = first;
    }
    if (end < bytes) return nullptr;
    auto block = std::make_unique<Block>();
    block->offset = (end - bytes) / Steps::alignment * Steps::alignment, block->bytes = bytes;
    block->data = steps.region + block->offset;
    steps.guests.push_back(block.get());
    ++steps.used;
    steps.is_in_lockstep = false;
    return block.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

DSPP_INLINE void Pool::leave_region(Block* block) noexcept {
  Steps& steps = *steps_;
  --steps.used;
  if (block->slot < 0) {
    std::erase(steps.guests, block);
    delete block;
    return;
  }
  std::int32_t& place = steps.slots[static_cast<std::size_t>(block->slot)].in_use;
  const std::uint32_t last = steps.in_use.back();
  steps.in_use[static_cast<std::size_t>(place)] = last;
  steps.slots[last].in_use = place;
  steps.in_use.pop_back();
  place = -1;
}

/// From the uses of a step with that peak. `beside`: bytes that will be taken elsewhere.
DSPP_INLINE void Pool::make_region(const std::vector<BlockUse>& uses, Size peak, Size beside) {
  Steps& steps = *steps_;
  if (uses.size() > Steps::most_uses) return;
  std::vector<BlockUse> within;
  std::vector<std::size_t> requests;
  for (std::size_t i = 0; i < uses.size(); ++i)
    if (Steps::may_have_slot(uses[i])) within.push_back(uses[i]), requests.push_back(i);
  for (BlockUse& use : within) use.bytes = round_up(use.bytes, Steps::alignment);
  if (within.empty()) return;
  const BlockLayout layout = lay_out(within);
  const Size most = limit_ > 0 ? limit_ : reserved_at_most(peak);
  if (live_total_ + slack_ + layout.bytes + beside > most) return;
  std::vector<Steps::Slot> slots(uses.size());
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i].use = uses[i];
  for (std::size_t w = 0; w < within.size(); ++w) slots[requests[w]].offset = layout.offsets[w];
  steps.in_use.reserve(slots.size());
  trim_kept();
  steps.region = source_ ? source_->take(layout.bytes) : detail::take_host_memory(layout.bytes);
  if (!steps.region) return;
  steps.bytes = layout.bytes;
  steps.slots = std::move(slots);
  reserved_ += steps.bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
}

/// False if something in it is in use, or if there is none.
DSPP_INLINE bool Pool::drop_region() noexcept {
  if (!steps_ || !steps_->region || steps_->used > 0) return false;
  Steps& steps = *steps_;
  source_ ? source_->give(std::exchange(steps.region, nullptr), steps.bytes)
          : detail::give_host_memory(std::exchange(steps.region, nullptr), steps.bytes);
  reserved_ -= std::exchange(steps.bytes, 0);
  steps.slots.clear();
  steps.is_in_lockstep = false;
  return true;
}

}  // namespace dspp

#endif  // DSPP_HAS_DEFINITIONS()
