// SPDX-License-Identifier: Apache-2.0
/// The members of Pool that trace the blocks of a step whose launches a device repeats: see tensor/block_trace.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <dspp/tensor/pool.hpp>

#if DSPP_HAS_DEFINITIONS()

namespace dspp {

template <class Less>
void Pool::order_kept(Less less) {
  std::vector<Block*> kept;
  for (auto& [bytes, of] : sizes_) {
    kept.clear();
    for (Block* block = of.kept; block; block = block->below) kept.push_back(block);
    std::sort(kept.begin(), kept.end(), less);
    of.kept = of.last = nullptr;
    for (Block* block : kept) {
      block->above = of.last, block->below = nullptr;
      (of.last ? of.last->below : of.kept) = block;
      of.last = block;
    }
  }
}

DSPP_INLINE void Pool::begin_trace() {
  drop_region();
  tracing_ = std::make_unique<Tracing>();
  *tracing_ = {{.returned = traced_returned_}, live_total_, peak_, live_, peaks_, at_peak_};
  peak_ = live_total_;
  peaks_ = at_peak_ = live_;
  ++traces_;
}

DSPP_INLINE void Pool::trace(bool on) {
  auto& others = tracing_->others;
  tracing_->is_on = on;
  if (!on) {
    for (Block* block : std::exchange(others, {})) keep(block);
    return;
  }
  for (auto* block = static_cast<Block*>(oldest_); block;) {
    auto* const next = static_cast<Block*>(block->next);
    if (block->is_others) others.push_back(take_kept(block));
    block = next;
  }
  order_kept([](const Block* a, const Block* b) { return a->data < b->data; });
}

DSPP_INLINE BlockTrace Pool::end_trace(const std::vector<const std::byte*>& used) {
  if (tracing_->is_on) trace(false);
  const std::unique_ptr<Tracing> tracing = std::move(tracing_);
  BlockTrace trace = std::move(tracing->trace);
  trace.peak = peak_ - tracing->live;
  for (int i = 0; i < category_count; ++i) {
    trace.peaks.bytes[i] = peaks_.bytes[i] - tracing->live_by.bytes[i];
    trace.at_peak.bytes[i] = at_peak_.bytes[i] - tracing->live_by.bytes[i];
    peaks_.bytes[i] = std::max(peaks_.bytes[i], tracing->peaks.bytes[i]);
  }
  if (tracing->peak >= peak_) peak_ = tracing->peak, at_peak_ = tracing->at_peak;
  trace.is_whole = trace.returned == traced_returned_;
  if (!trace.is_whole) return trace;  // some of its blocks are gone
  std::sort(trace.taken.begin(), trace.taken.end());
  trace.taken.erase(std::unique(trace.taken.begin(), trace.taken.end()), trace.taken.end());
  std::vector<const std::byte*> others = used;
  const auto found = [&](const std::byte* data) {
    const auto at = std::lower_bound(others.begin(), others.end(), data);
    const bool is_there = at != others.end() && *at == data;
    if (is_there) others.erase(at);
    return is_there;
  };
  for (MemoryBlock<Pool>* block : trace.taken) found(block->data);
  for (MemoryBlock<Pool>* block = first_; block; block = block->next)
    if (found(block->data)) {
      static_cast<Block*>(block)->trace = traces_;
      trace.used.emplace_back(block, static_cast<Block*>(block)->use);
    }
  trace.is_whole = others.empty();  // else it used a block that was given back meanwhile
  order_kept(
      [](const Block* a, const Block* b) { return a->trace != b->trace ? a->trace < b->trace : a->use > b->use; });
  return trace;
}

DSPP_INLINE bool Pool::may_repeat(const BlockTrace& trace) const {
  const bool is_within = limit_ == 0 || live_total_ + trace.peak <= limit_;
  if (!trace.is_whole || trace.returned != traced_returned_ || !is_within) return false;
  const auto is_kept = [](const MemoryBlock<Pool>* block) { return block->references == 0; };
  return std::all_of(trace.taken.begin(), trace.taken.end(), is_kept) &&
         std::all_of(trace.used.begin(), trace.used.end(), [&](const auto& one) {
           return !is_kept(one.first) && static_cast<const Block*>(one.first)->use == one.second;
         });
}

DSPP_INLINE bool Pool::mark_others(const BlockTrace& trace) {
  bool is_new = false;
  if (!trace.is_whole || trace.returned != traced_returned_) return is_new;
  for (MemoryBlock<Pool>* block : trace.taken)
    if (block->references > 0) is_new |= !std::exchange(static_cast<Block*>(block)->is_others, true);
  return is_new;
}

DSPP_INLINE void Pool::end_repeat(const BlockTrace& trace) noexcept {
  for (MemoryBlock<Pool>* block : trace.taken) keep(static_cast<Block*>(block));
}

DSPP_INLINE void Pool::begin_repeat(const BlockTrace& trace) {
  for (MemoryBlock<Pool>* block : trace.taken) take_kept(static_cast<Block*>(block));
  CategoryBytes at_peak = live_;
  for (int i = 0; i < category_count; ++i) {
    peaks_.bytes[i] = std::max(peaks_.bytes[i], live_.bytes[i] + trace.peaks.bytes[i]);
    at_peak.bytes[i] += trace.at_peak.bytes[i];
  }
  if (live_total_ + trace.peak <= peak_) return;
  peak_ = live_total_ + trace.peak;
  at_peak_ = at_peak;
}

DSPP_INLINE TracedBlock Pool::traced(const Storage<Pool>& storage) const {
  MemoryBlock<Pool>* const block = storage.block_;
  if (!block) return {};
  return {block, block->bytes, block->category, block->label};
}

DSPP_INLINE Storage<Pool> Pool::take_again(const TracedBlock& traced) {
  Storage<Pool> storage;
  if (!traced.block) return storage;
  auto* const block = static_cast<Block*>(traced.block);
  take_kept(block);
  begin_use(block, traced.bytes, traced.category, traced.label);
  block->references = 1;
  storage.block_ = block;
  return storage;
}

}  // namespace dspp

#endif  // DSPP_HAS_DEFINITIONS()
