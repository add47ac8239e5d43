// SPDX-License-Identifier: Apache-2.0
/// The Cpu's memory: a caching allocator with categories, a peak, a limit, and a map when it runs out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/tensor/block.hpp>

namespace dspp {

/// One thing that would lower the memory use, and by how much: those who know it add it, and the out-of-memory map
/// prints it.
struct Remedy {
  std::string what;
  Size saved_bytes = 0;
};

/// Hands out 64-byte aligned blocks and keeps those given back for the next request of the same size.
///
/// Memory   live() counts blocks in use; reserved() also those kept. reserved() - live() is returned by trim().
/// Throws   Error(out_of_memory) with a map, when `limit_bytes` or the machine is exceeded
///
/// A Pool belongs to one thread.
class Pool {
 public:
  explicit Pool(Size limit_bytes = 0) : limit_(limit_bytes) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    trim();
    for (MemoryBlock<Pool>* block : headers_) delete block;
  }

  MemoryBlock<Pool>* take(Size bytes, Category category, const char* label);
  void give(MemoryBlock<Pool>* block) noexcept;

  Size live() const { return live_total_; }
  Size peak() const { return peak_; }
  Size reserved() const { return reserved_; }
  Size limit() const { return limit_; }
  const CategoryBytes& live_by_category() const { return live_; }
  const CategoryBytes& peak_by_category() const { return peaks_; }
  const CategoryBytes& at_peak() const { return at_peak_; }

  void set_limit(Size bytes) { limit_ = bytes; }
  /// What `owner` knows to help, in place of what it knew before; an empty list when it goes.
  void set_remedies(const void* owner, std::vector<Remedy> remedies) {
    std::erase_if(remedies_, [&](const auto& known) { return known.first == owner; });
    if (!remedies.empty()) remedies_.emplace_back(owner, std::move(remedies));
  }
  /// Restarts the peaks from what is live now.
  void reset_peak() {
    peak_ = live_total_;
    peaks_ = at_peak_ = live_;
  }
  /// The n-th request from now on fails (1 is the next): for tests of what an exhausted machine does to callers.
  void fail_nth_request(Size n) { fail_in_ = n; }
  /// Gives the kept blocks back to the system.
  void trim() noexcept;

  /// The operation counter of the paper device; a real device does not count.
  constexpr void count_flops(double) {}
  constexpr void set_backward(bool) {}

  /// A number from 1 on that it has not given before: a tape names its passes by it.
  std::uint64_t new_number() { return ++numbers_; }

 private:
  std::byte* acquire(Size bytes);
  std::string map_of_memory(Size requested, Category category, const char* label) const;
  void link(MemoryBlock<Pool>* block) noexcept;
  void unlink(MemoryBlock<Pool>* block) noexcept;

  CategoryBytes live_{}, peaks_{}, at_peak_{};
  Size live_total_ = 0, peak_ = 0, reserved_ = 0, limit_ = 0, fail_in_ = 0;
  std::uint64_t numbers_ = 0;
  MemoryBlock<Pool>* first_ = nullptr;
  std::vector<MemoryBlock<Pool>*> headers_;       // of blocks not in use
  std::map<Size, std::vector<std::byte*>> kept_;  // by exact size: a training step asks for the same sizes again
  std::vector<std::pair<const void*, std::vector<Remedy>>> remedies_;  // by owner
};

/// 1536 -> "1.5 KiB". For people; files and JSON carry plain bytes.
std::string readable_bytes(Size bytes);

// ---------------------------------------------------------------------------------------------------------------------

inline std::string readable_bytes(Size bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  std::string text = std::to_string(value);  // six decimals; one is kept
  text.resize(text.find('.') + (unit == 0 ? 0 : 2));
  return text + " " + units[unit];
}

inline MemoryBlock<Pool>* Pool::take(Size bytes, Category category, const char* label) {
  const Size size = round_up(bytes, block_alignment);
  const bool told_to_fail = fail_in_ > 0 && --fail_in_ == 0;
  if (told_to_fail || (limit_ > 0 && live_total_ + size > limit_))
    fail(ErrorCode::out_of_memory, map_of_memory(size, category, label));
  if (headers_.empty()) headers_.push_back(new MemoryBlock<Pool>);
  std::byte* data = acquire(size);
  if (!data) fail(ErrorCode::out_of_memory, map_of_memory(size, category, label));
  MemoryBlock<Pool>* block = headers_.back();
  headers_.pop_back();
  *block = MemoryBlock<Pool>{data, size, category, 0, this, label, nullptr, nullptr};
  link(block);
  live_[category] += size;
  live_total_ += size;
  peaks_[category] = std::max(peaks_[category], live_[category]);
  if (live_total_ > peak_) {
    peak_ = live_total_;
    at_peak_ = live_;
  }
  return block;
}

inline void Pool::give(MemoryBlock<Pool>* block) noexcept {
  unlink(block);
  live_[block->category] -= block->bytes;
  live_total_ -= block->bytes;
  kept_[block->bytes].push_back(block->data);
  headers_.push_back(block);
}

inline void Pool::trim() noexcept {
  for (auto& [size, blocks] : kept_) {
    for (std::byte* data : blocks) std::free(data);
    reserved_ -= size * static_cast<Size>(blocks.size());
  }
  kept_.clear();
}

inline std::byte* Pool::acquire(Size bytes) {
  if (auto found = kept_.find(bytes); found != kept_.end() && !found->second.empty()) {
    std::byte* data = found->second.back();
    found->second.pop_back();
    return data;
  }
  if (limit_ > 0 && reserved_ + bytes > limit_) trim();
  const auto size = static_cast<std::size_t>(std::max(bytes, block_alignment));
  void* data = std::aligned_alloc(static_cast<std::size_t>(block_alignment), size);
  if (!data) {
    trim();
    data = std::aligned_alloc(static_cast<std::size_t>(block_alignment), size);
  }
  if (data) reserved_ += bytes;
  return static_cast<std::byte*>(data);
}

inline void Pool::link(MemoryBlock<Pool>* block) noexcept {
  block->next = first_;
  if (first_) first_->previous = block;
  first_ = block;
}

inline void Pool::unlink(MemoryBlock<Pool>* block) noexcept {
  (block->previous ? block->previous->next : first_) = block->next;
  if (block->next) block->next->previous = block->previous;
}

inline std::string Pool::map_of_memory(Size requested, Category category, const char* label) const {
  Size largest_kept = 0;
  for (const auto& [size, blocks] : kept_)
    if (!blocks.empty()) largest_kept = size;
  std::string text = "dspp: a Pool needs " + readable_bytes(requested) + " more for " + name_of(category) + " (" +
                     label + "), but " + readable_bytes(live_total_) + " are in use" +
                     (limit_ > 0 ? " of a limit of " + readable_bytes(limit_) : " and the machine gives no more") +
                     (remedies_.empty() ? ". Lower the largest below, or raise the limit.\n"
                                        : ". Use one of the remedies below, or raise the limit.\n");
  text += "  free under the limit   " +
          (limit_ > 0 ? readable_bytes(limit_ - live_total_) : std::string("no limit set")) +
          "\n  largest kept block     " + readable_bytes(largest_kept) + "\n";
  for (int i = 0; i < category_count; ++i)
    if (live_.bytes[i] > 0) {
      std::string name = name_of(static_cast<Category>(i));
      name.resize(23, ' ');
      text += "  " + name + readable_bytes(live_.bytes[i]) + "\n";
    }
  std::vector<const MemoryBlock<Pool>*> blocks;
  for (const MemoryBlock<Pool>* block = first_; block; block = block->next) blocks.push_back(block);
  std::sort(blocks.begin(), blocks.end(), [](auto* a, auto* b) { return a->bytes > b->bytes; });
  if (blocks.size() > 5) blocks.resize(5);
  for (const MemoryBlock<Pool>* block : blocks)
    text += "  largest: " + readable_bytes(block->bytes) + "  " + name_of(block->category) + "  " + block->label + "\n";
  for (const auto& [owner, remedies] : remedies_)
    for (const Remedy& remedy : remedies)
      text += "  " + remedy.what + " saves " + readable_bytes(remedy.saved_bytes) + "\n";
  return text;
}

}  // namespace dspp
