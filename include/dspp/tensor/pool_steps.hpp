// SPDX-License-Identifier: Apache-2.0
/// The members of Pool that give the blocks of steps places in one region.
///
/// A step's requests and returns are noted. After the first step, and again when two steps were alike that the region
/// does not fit, each block that was returned within its step gets a slot: a place in the region that no block has
/// which is in use at the same time (block_layout.hpp). In the steps from there on, the n-th request gets the n-th
/// slot if it has its bytes, and if nothing that is in use overlaps it: a block may be kept longer than it was, such
/// as a loss that the caller holds. A few requests may come besides, from the rest of the Pool. After more the step is
/// unlike the others: its requests, as those between steps, are guests in the gaps of the region, which is given back
/// after it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include <dspp/tensor/pool.hpp>

#if DSPP_HAS_DEFINITIONS()

namespace dspp {

namespace detail {
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool guards_single_blocks = true;
#elif defined(__has_feature)
inline constexpr bool guards_single_blocks = __has_feature(address_sanitizer);
#else
inline constexpr bool guards_single_blocks = false;
#endif
}  // namespace detail

DSPP_INLINE void Pool::lay_out_steps(bool on) {
  if (!steps_) steps_ = std::make_unique<Steps>();
  steps_->is_on = on;
  if (!on) drop_region();
}

DSPP_INLINE void Pool::begin_step() {
  if (!steps_) lay_out_steps(!detail::guards_single_blocks);
  Steps& steps = *steps_;
  if (!steps.is_on || steps.is_under_way || traces_ > 0) return;
  steps.is_under_way = true, steps.is_unlike = false;
  ++steps.number;
  steps.now = steps.unlike = 0, steps.next = 0;
  steps.uses.clear();
}

DSPP_INLINE void Pool::abandon_step() noexcept {
  if (steps_) steps_->is_under_way = false;
}

DSPP_INLINE void Pool::end_step() {
  if (!steps_ || !steps_->is_under_way) return;
  Steps& steps = *steps_;
  steps.is_under_way = false;
  const bool is_first = steps.before.empty();
  bool is_as_before = steps.before.size() == steps.uses.size();
  for (std::size_t i = 0; is_as_before && i < steps.uses.size(); ++i)
    is_as_before = steps.before[i] == steps.uses[i].bytes;
  steps.before.clear();
  for (const BlockUse& use : steps.uses) steps.before.push_back(use.bytes);
  const bool fits = steps.region && steps.unlike == 0 && steps.next == steps.slots.size();
  if (steps.region && !fits) {
    trim_kept();
    if ((steps.is_unlike || is_as_before) && !drop_region()) return;
  }
  if (!steps.region && (is_first || is_as_before)) make_region();
}

/// Of a request while there is a region; null: it is served elsewhere.
DSPP_INLINE Pool::Block* Pool::place(Size bytes) {
  Steps& steps = *steps_;
  if (traces_ > 0) return nullptr;
  const bool is_next = steps.next < steps.slots.size() && steps.slots[steps.next].bytes == bytes;
  if (bytes == 0) {
    if (steps.is_under_way && is_next) ++steps.next;
    return nullptr;
  }
  if (!steps.is_under_way || steps.is_unlike) return take_as_guest(bytes);
  if (is_next) return take_slot(steps.next++);
  if (++steps.unlike <= Steps::most_unlike) return nullptr;
  steps.is_unlike = true;
  return take_as_guest(bytes);
}

DSPP_INLINE Pool::Block* Pool::take_slot(std::size_t slot) noexcept {
  Steps& steps = *steps_;
  Steps::Slot& own = steps.slots[slot];
  if (own.offset == Steps::elsewhere || own.is_used) return nullptr;
  const auto end = slot + 1 < steps.slots.size() ? steps.slots[slot + 1].first_conflict : steps.conflicts.size();
  for (std::size_t i = own.first_conflict; i < end; ++i)
    if (steps.slots[steps.conflicts[i]].is_used) return nullptr;
  for (const Block* guest : steps.guests)
    if (guest->offset < own.offset + own.bytes && own.offset < guest->offset + guest->bytes) return nullptr;
  own.is_used = true;
  ++steps.used;
  own.block.data = steps.region + own.offset;
  own.block.offset = own.offset, own.block.slot = static_cast<std::int32_t>(slot);
  return &own.block;
}

/// In the last gap of the region that it fits in, where the fewest slots are, or nullptr; also for a small block, which
/// may stay in a step and keep larger ones from their slots.
DSPP_INLINE Pool::Block* Pool::take_as_guest(Size bytes) {
  Steps& steps = *steps_;
  if (bytes < steps.bytes / 64) return nullptr;
  std::vector<std::pair<Size, Size>> taken;
  for (const Steps::Slot& slot : steps.slots)
    if (slot.is_used) taken.emplace_back(slot.offset, slot.offset + slot.bytes);
  for (const Block* guest : steps.guests) taken.emplace_back(guest->offset, guest->offset + guest->bytes);
  std::sort(taken.rbegin(), taken.rend());  // they do not overlap
  Size end = steps.bytes;
  for (const auto& [first, last] : taken) {
    if (end - last >= bytes) break;
    end = first;
  }
  const Size at = end - bytes;
  if (at < 0) return nullptr;
  auto block = std::make_unique<Block>();
  block->data = steps.region + at;
  block->offset = at, block->bytes = bytes;
  steps.guests.push_back(block.get());
  ++steps.used;
  return block.release();
}

DSPP_INLINE void Pool::leave_region(Block* block) noexcept {
  Steps& steps = *steps_;
  --steps.used;
  if (block->slot >= 0) {
    steps.slots[static_cast<std::size_t>(block->slot)].is_used = false;
    return;
  }
  std::erase(steps.guests, block);
  delete block;
}

/// From the uses of the step that ended.
DSPP_INLINE void Pool::make_region() {
  Steps& steps = *steps_;
  std::vector<BlockUse> within;
  std::vector<std::size_t> requests;
  for (std::size_t i = 0; i < steps.uses.size(); ++i)
    if (steps.uses[i].end != BlockUse::still_used && steps.uses[i].bytes > 0)
      within.push_back(steps.uses[i]), requests.push_back(i);
  if (within.empty() || within.size() > Steps::most_uses) return;
  const BlockLayout layout = lay_out(within);
  if (live_total_ + layout.bytes > (limit_ > 0 ? limit_ : reserved_at_most(peak_))) return;
  std::vector<Steps::Slot> slots(steps.uses.size());
  std::vector<std::uint32_t> conflicts;
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i].bytes = steps.uses[i].bytes;
  for (std::size_t w = 0; w < within.size(); ++w) slots[requests[w]].offset = layout.offsets[w];
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Steps::Slot& own = slots[i];
    own.first_conflict = static_cast<std::uint32_t>(conflicts.size());
    if (own.offset == Steps::elsewhere) continue;
    for (std::size_t w = 0; w < within.size(); ++w)
      if (requests[w] != i && layout.offsets[w] < own.offset + own.bytes &&
          own.offset < layout.offsets[w] + within[w].bytes)
        conflicts.push_back(static_cast<std::uint32_t>(requests[w]));
    if (conflicts.size() > Steps::most_conflicts) return;
  }
  trim_kept();
  const auto bytes = static_cast<std::size_t>(layout.bytes);
  steps.region = source_
                     ? source_->take(layout.bytes)
                     : static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(block_alignment), bytes));
  if (!steps.region) return;
  steps.bytes = layout.bytes;
  steps.slots = std::move(slots), steps.conflicts = std::move(conflicts);
  reserved_ += steps.bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
}

/// False if something in it is in use, or if there is none.
DSPP_INLINE bool Pool::drop_region() noexcept {
  if (!steps_ || !steps_->region || steps_->used > 0) return false;
  Steps& steps = *steps_;
  source_ ? source_->give(std::exchange(steps.region, nullptr), steps.bytes)
          : std::free(std::exchange(steps.region, nullptr));
  reserved_ -= std::exchange(steps.bytes, 0);
  steps.slots.clear(), steps.conflicts.clear();
  return true;
}

}  // namespace dspp

#endif  // DSPP_HAS_DEFINITIONS()
