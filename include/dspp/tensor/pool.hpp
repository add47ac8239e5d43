// SPDX-License-Identifier: Apache-2.0
/// A device's memory: a caching allocator with categories, a peak, a limit, and a map when it runs out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/profiler.hpp>
#include <dspp/tensor/block.hpp>
#include <dspp/tensor/block_layout.hpp>
#include <dspp/tensor/block_trace.hpp>
#include <dspp/tensor/host_memory.hpp>
#include <dspp/tensor/memory_timeline.hpp>

namespace dspp {

/// One measure that would lower the memory use, and by how many bytes: registered by its owner, printed in the
/// out-of-memory map.
struct Remedy {
  std::string what;
  Size saved_bytes = 0;
};

/// The source of a Pool's memory if it is not the host's system: a device's. It outlives the Pool.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// That many bytes, aligned to block_alignment, or null if there are none.
  virtual std::byte* take(Size bytes) noexcept = 0;
  /// Frees what take(bytes) returned. Operations issued before may still use it.
  virtual void give(std::byte* data, Size bytes) noexcept = 0;
  /// Issues a fill of every byte with `value`.
  virtual void fill(std::byte* data, Size bytes, unsigned char value) noexcept = 0;
};

/// Allocates 64-byte aligned blocks and keeps freed ones for the next request of the same size.
///
/// Between begin_step() and end_step() requests come as in the step before, or the plan: blocks lie in one region, by
/// the times at which they are used, so that a step takes little more than its peak. See pool_steps.hpp. What comes
/// otherwise is served as any other request, of which the following holds.
///
/// If no kept block has that size, the request takes new memory while reserved_at_most() allows it. Beyond that it
/// takes a kept block that is up to a quarter larger, or returns the least recently freed blocks to the system: a loop
/// over many shapes keeps blocks of the latest ones.
///
/// Cost     a look-up by size; the steady state of one shape asks the system for nothing
/// Memory   live() counts bytes in use, as requested, and reserved() the system's
/// Throws   Error(out_of_memory) with a map, when `limit_bytes` or the machine is exceeded
///
/// A Pool belongs to one thread.
class Pool {
 public:
  /// The largest reserved() of a Pool with that peak(), but within a step that is unlike the one before: a fifth more,
  /// and at least 1 MiB more.
  static constexpr Size reserved_at_most(Size peak) { return peak + std::max(peak / 5, 1_MiB); }

  explicit Pool(Size limit_bytes = 0, MemorySource* source = nullptr) : limit_(limit_bytes), source_(source) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  MemoryBlock<Pool>* take(Size bytes, Category category, const char* label);
  void give(MemoryBlock<Pool>* block) noexcept;

  Size live() const { return live_total_; }
  Size peak() const { return peak_; }
  Size reserved() const { return reserved_; }
  Size peak_reserved() const { return peak_reserved_; }
  Size limit() const { return limit_; }
  /// Null: the host's system.
  MemorySource* source() const { return source_; }
  const CategoryBytes& live_by_category() const { return live_; }
  const CategoryBytes& peak_by_category() const { return peaks_; }
  const CategoryBytes& at_peak() const { return at_peak_; }

  void set_limit(Size bytes) { limit_ = bytes; }
  /// The remedies that `owner` can offer, replacing its earlier ones; an empty list removes it.
  void set_remedies(const void* owner, std::vector<Remedy> remedies);
  /// The same with the remedies that make() returns; paper does not call it.
  template <class Make>
  void ask_remedies(const void* owner, Make make) {
    set_remedies(owner, make());
  }
  /// Resets the peaks to the current live() and reserved().
  void reset_peak();
  /// The n-th request from now on fails (1 is the next): for tests of callers on an exhausted machine.
  void fail_nth_request(Size n) { fail_in_ = n; }
  /// True if blocks are filled with NaN, of every type of float, when allocated and when freed: reading uninitialised
  /// or freed memory then gives NaN instead of plausible numbers.
  void poison(bool on) { poisons_ = on; }
  /// Returns the kept blocks to the system, and the region of steps if nothing in it is in use.
  void trim() noexcept;

  /// A step begins, if none is under way, and ends, or is given up. Nothing if launches are traced.
  void begin_step();
  void end_step() noexcept;
  void abandon_step() noexcept;
  /// Whether steps get a region; by default but under the address sanitizer, which guards single blocks.
  void lay_out_steps(bool on);
  /// Gives the next step a region, whose blocks are those of the step that was `planned`: before the first step,
  /// plan_timeline(..., 0) of plan/timeline.hpp. Nothing if there is one, or no room for it.
  void lay_out_next(const MemoryTimeline& planned);
  /// While on, blocks taken between steps lie in the region, too, where it has room: of an evaluation.
  void lend_region(bool on);
  /// The bytes of the region; 0: there is none.
  Size region() const { return steps_ ? steps_->bytes : 0; }

  /// Notes the blocks in use, and from now on each that is taken or given back, in place of a timeline begun before;
  /// not those of steps that a device repeats by graphs.
  void begin_timeline(std::size_t most_events = 1'000'000);
  /// What was noted, which ends; empty if none was begun.
  MemoryTimeline end_timeline();

  /// Begins a trace, which notes what is given out between trace(true) and trace(false). There, blocks come in an order
  /// that depends on which are kept alone.
  void begin_trace();
  void trace(bool on);
  /// Ends it. `used`: addresses of blocks, in order, that are used beside those that were given out.
  BlockTrace end_trace(const std::vector<const std::byte*>& used);
  /// True if what a trace took is kept, and what it used beside was not given back since.
  bool may_repeat(const BlockTrace& trace) const;
  /// Marks what a trace took and is in use: it is others', and later traces leave it out. False: it was marked before.
  bool mark_others(const BlockTrace& trace);
  /// Raises the peaks as if the trace's blocks were given out once more, and keeps them from others until end_repeat.
  void begin_repeat(const BlockTrace& trace);
  void end_repeat(const BlockTrace& trace) noexcept;
  TracedBlock traced(const Storage<Pool>& storage) const;
  /// Gives out a kept block of a trace as it was given out there.
  Storage<Pool> take_again(const TracedBlock& traced);

  /// Hears of all work in this memory; null: nothing does. It outlives the Pool, or is taken away before its end.
  Profiler* profiler() const { return profiler_; }
  void set_profiler(Profiler* profiler) { profiler_ = profiler; }
  /// The operations of the kernel launched next: counted on paper, and by a profiler.
  void count_flops(double operations) {
    if (profiler_) profiler_->count_flops(operations);
  }
  constexpr void set_backward(bool) {}
  /// To a profiler: a layer uses this parameter; the operation has its value.
  void use_parameter(const void* parameter) {
    if (profiler_) profiler_->use(parameter);
  }
  void end_operation() {
    if (profiler_) profiler_->end_operation();
  }

  /// A unique number from 1 on: a tape identifies its passes by it.
  std::uint64_t new_number() { return ++numbers_; }

 private:
  struct Block;
  /// All blocks of one capacity, and those of them that are kept.
  struct SizeClass {
    Block *kept = nullptr, *last = nullptr;  // those of traces are the last
    Size blocks = 0;
  };
  using SizeClasses = std::map<Size, SizeClass>;
  struct Block : MemoryBlock<Pool> {  // previous and next of a kept one: freed before and after it
    SizeClasses::iterator size_class{};
    Block* above = nullptr;  // the next kept one of its class
    Block* below = nullptr;
    std::uint64_t use = 0, trace = 0;  // the numbers of its last use, and of the last trace that has it; 0: none has
    bool is_others = false;            // traces leave it out
    std::uint64_t step = 0;            // in which it was requested, and the number of that request
    std::size_t request = 0;
    Size offset = -1;        // in the region; -1: elsewhere
    std::int32_t slot = -1;  // whose it is, there; -1: a guest

    Size capacity() const { return offset < 0 ? size_class->first : bytes; }
  };

  /// The requests of a step, and where those of the next lie.
  struct Steps {
    static constexpr Size most_unlike = 16;    // requests of a step that may come besides
    static constexpr Size least_bytes = 4097;  // of a block with a slot: a loss that is kept takes no region with it
    static constexpr Size alignment = 256;     // in the region: cudaMalloc's, which cuBLASLt asks of its workspace
    static constexpr std::size_t most_uses = 16384;
    static constexpr int most_layouts = 3;  // of the same requests
    static constexpr Size elsewhere = -1;
    struct Slot {
      BlockUse use{};
      Size offset = elsewhere;   // elsewhere: was used beyond the end of its step, or is short
      std::int32_t in_use = -1;  // its place among those that are; -1: it is not
      Block block{};
    };

    bool is_on = true, is_under_way = false, is_lent = false;
    bool is_unlike = false;        // no request gets its slot from here on
    bool is_in_lockstep = false;   // all requests and returns came as in the step that was laid out
    std::uint64_t number = 0;      // of the step, from 1
    Size peak = 0;                 // of this step
    Size now = 0;                  // requests and returns of this step
    std::vector<BlockUse> uses{};  // of this step
    std::vector<Size> before{};    // the bytes of the step before
    int layouts = 0;               // of these
    std::byte* region = nullptr;
    Size bytes = 0, used = 0;  // of the region; blocks in it
    Size taken_between = 0;    // bytes taken beside the region since the last step
    std::vector<Slot> slots{};
    std::vector<std::uint32_t> in_use{};  // slots
    std::vector<Block*> guests{};         // of the region, which have no slot
    std::size_t next = 0;                 // slot
    Size unlike = 0, refused = 0;         // requests that came otherwise, and whose slot was not free

    bool lends() const { return is_lent && !is_under_way; }
    static bool may_have_slot(const BlockUse& use) {
      return use.end != BlockUse::still_used && use.bytes >= least_bytes;
    }
  };

  Block* take_next_slot(Size bytes) noexcept;
  Block* take_slot(std::size_t slot) noexcept;
  Block* take_as_guest(Size bytes) noexcept;
  void leave_region(Block* block) noexcept;
  void note_use(Block* block, Size bytes) noexcept;
  void note_return(const Block* block) noexcept;
  void note_step();
  void make_region(const std::vector<BlockUse>& uses, Size peak, Size beside = 0);
  bool drop_region() noexcept;
  void trim_kept() noexcept;
  template <class Less>
  void order_kept(Less less);
  void note_taken(const Block& block) noexcept;
  void begin_use(Block* block, Size bytes, Category category, const char* label);
  Block* acquire(Size bytes);
  Block* larger_kept(SizeClasses::iterator from, Size bytes);
  Block* create(Size bytes);
  void make_room(Size bytes, Size most) noexcept;
  void keep(Block* block) noexcept;
  Block* take_kept(Block* block) noexcept;
  void destroy(Block* kept) noexcept;
  void fill_with_poison(const Block& block) noexcept;
  std::string map_of_memory(Size requested, Category category, const char* label) const;
  void link(MemoryBlock<Pool>* block) noexcept;
  void unlink(MemoryBlock<Pool>* block) noexcept;

  CategoryBytes live_{}, peaks_{}, at_peak_{};
  Size live_total_ = 0, peak_ = 0, reserved_ = 0, peak_reserved_ = 0, limit_ = 0, fail_in_ = 0;
  Size slack_ = 0;  // bytes of blocks in use beyond those requested
  MemorySource* source_;
  Profiler* profiler_ = nullptr;
  std::uint64_t numbers_ = 0, uses_ = 0, traces_ = 0, traced_returned_ = 0;
  struct Tracing {
    BlockTrace trace{};
    Size live = 0, peak = 0;  // at its begin, as those below
    CategoryBytes live_by{}, peaks{}, at_peak{};
    bool is_on = false;
    std::vector<Block*> others{};  // kept ones, out of their lists while it is on
  };
  std::unique_ptr<Tracing> tracing_;
  std::unique_ptr<Steps> steps_;
  std::unique_ptr<MemoryRecorder> recorder_;
  bool poisons_ = false;
  MemoryBlock<Pool>* first_ = nullptr;
  MemoryBlock<Pool>*oldest_ = nullptr, *newest_ = nullptr;             // of the kept blocks, in order of freeing
  SizeClasses sizes_;                                                  // a training step requests the same sizes again
  std::vector<std::pair<const void*, std::vector<Remedy>>> remedies_;  // by owner
};

/// 1536 -> "1.5 KiB". For people; files and JSON carry plain bytes.
std::string readable_bytes(Size bytes);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Pool::~Pool() {
  trim();
}

DSPP_INLINE void Pool::set_remedies(const void* owner, std::vector<Remedy> remedies) {
  std::erase_if(remedies_, [&](const auto& known) { return known.first == owner; });
  if (!remedies.empty()) remedies_.emplace_back(owner, std::move(remedies));
}

DSPP_INLINE void Pool::reset_peak() {
  peak_ = live_total_;
  peak_reserved_ = reserved_;
  peaks_ = at_peak_ = live_;
}

DSPP_INLINE std::string readable_bytes(Size bytes) {
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

DSPP_INLINE MemoryBlock<Pool>* Pool::take(Size bytes, Category category, const char* label) {
  const Size size = round_up(bytes, block_alignment);
  const bool told_to_fail = fail_in_ > 0 && --fail_in_ == 0;
  if (told_to_fail || (limit_ > 0 && live_total_ + size > limit_))
    fail(ErrorCode::out_of_memory, map_of_memory(size, category, label));
  Block* block = acquire(size);
  if (!block) fail(ErrorCode::out_of_memory, map_of_memory(size, category, label));
  begin_use(block, size, category, label);
  fill_with_poison(*block);
  return block;
}

DSPP_INLINE void Pool::begin_use(Block* block, Size bytes, Category category, const char* label) {
  static_cast<MemoryBlock<Pool>&>(*block) = {block->data, bytes, category, 0, this, label, nullptr, nullptr};
  block->use = ++uses_;
  if (steps_ && steps_->is_under_way) note_use(block, bytes);
  slack_ += block->capacity() - bytes;
  link(block);
  live_[category] += bytes;
  live_total_ += bytes;
  peaks_[category] = std::max(peaks_[category], live_[category]);
  if (live_total_ > peak_) {
    peak_ = live_total_;
    at_peak_ = live_;
  }
  if (recorder_) note_taken(*block);
  if (!tracing_ || !tracing_->is_on) return;
  block->trace = traces_;
  tracing_->trace.taken.push_back(block);
}

DSPP_INLINE void Pool::give(MemoryBlock<Pool>* given) noexcept {
  auto* block = static_cast<Block*>(given);
  fill_with_poison(*block);
  unlink(block);
  live_[block->category] -= block->bytes;
  live_total_ -= block->bytes;
  slack_ -= block->capacity() - block->bytes;
  if (steps_ && steps_->is_under_way) note_return(block);
  if (recorder_) recorder_->given(given, live_total_);
  block->offset < 0 ? keep(block) : leave_region(block);
}

DSPP_INLINE void Pool::trim_kept() noexcept {
  while (oldest_) destroy(static_cast<Block*>(oldest_));
}

DSPP_INLINE void Pool::trim() noexcept {
  trim_kept();
  drop_region();
}

/// A block of at least that many bytes, kept or new, or nullptr.
DSPP_INLINE Pool::Block* Pool::acquire(Size bytes) {
  if (steps_ && steps_->region)
    if (Block* own = steps_->lends() ? take_as_guest(bytes) : take_next_slot(bytes)) return own;
  const auto found = sizes_.lower_bound(bytes);
  if (found != sizes_.end() && found->first == bytes && found->second.kept) return take_kept(found->second.kept);
  const Size before = tracing_ ? tracing_->peak : 0;  // a trace counts its own peak
  const Size most = reserved_at_most(std::max({peak_, before, live_total_ + bytes}));
  const Size limited = limit_ > 0 ? std::min(limit_, most) : most;
  if (reserved_ + bytes > limited) {
    if (Block* larger = larger_kept(found, bytes)) return larger;
    if (Block* guest = take_as_guest(bytes)) return guest;
  }
  make_room(bytes, limited);
  Block* block = create(bytes);
  if (block) return block;
  if (Block* guest = take_as_guest(bytes)) return guest;
  const bool has_kept = oldest_ != nullptr;
  trim_kept();
  return drop_region() || has_kept ? create(bytes) : nullptr;
}

/// The smallest kept block that is not much larger, or nullptr. All blocks in use together exceed their requests by at
/// most a tenth of the peak, which keeps reserved_at_most() true; under a limit, which is exact, by nothing.
DSPP_INLINE Pool::Block* Pool::larger_kept(SizeClasses::iterator from, Size bytes) {
  if (limit_ > 0) return nullptr;
  const Size most = bytes + std::min(bytes / 4, peak_ / 10 - slack_);
  for (; from != sizes_.end() && from->first <= most; ++from)
    if (from->second.kept) return take_kept(from->second.kept);
  return nullptr;
}

DSPP_INLINE Pool::Block* Pool::create(Size bytes) {
  auto block = std::make_unique<Block>();
  const auto size_class = sizes_.try_emplace(bytes).first;
  const Size size = std::max(bytes, block_alignment);
  block->data = source_ ? source_->take(size) : detail::take_host_memory(size);
  if (!block->data) {
    if (size_class->second.blocks == 0) sizes_.erase(size_class);
    return nullptr;
  }
  block->size_class = size_class;
  ++size_class->second.blocks;
  reserved_ += bytes;
  if (steps_ && !steps_->is_under_way) steps_->taken_between += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return block.release();
}

/// Returns kept blocks to the system until `bytes` more are within `most`.
DSPP_INLINE void Pool::make_room(Size bytes, Size most) noexcept {
  while (oldest_ && reserved_ + bytes > most) destroy(static_cast<Block*>(oldest_));
  if (reserved_ + bytes > most) drop_region();
}

/// Pushes a block onto its class and the end of the list of kept blocks.
DSPP_INLINE void Pool::keep(Block* block) noexcept {
  SizeClass& of = block->size_class->second;
  const bool is_last = block->trace != 0;
  block->below = is_last ? nullptr : of.kept;
  block->above = is_last ? of.last : nullptr;
  (block->above ? block->above->below : of.kept) = block;
  (block->below ? block->below->above : of.last) = block;
  block->previous = newest_;
  block->next = nullptr;
  (newest_ ? newest_->next : oldest_) = block;
  newest_ = block;
}

DSPP_INLINE Pool::Block* Pool::take_kept(Block* block) noexcept {
  SizeClass& of = block->size_class->second;
  (block->above ? block->above->below : of.kept) = block->below;
  (block->below ? block->below->above : of.last) = block->above;
  (block->previous ? block->previous->next : oldest_) = block->next;
  (block->next ? block->next->previous : newest_) = block->previous;
  return block;
}

DSPP_INLINE void Pool::destroy(Block* kept) noexcept {
  const auto size_class = take_kept(kept)->size_class;
  if (kept->trace != 0) ++traced_returned_;
  const Size bytes = std::max(size_class->first, block_alignment);
  source_ ? source_->give(kept->data, bytes) : detail::give_host_memory(kept->data, bytes);
  reserved_ -= size_class->first;
  delete kept;
  if (--size_class->second.blocks == 0) sizes_.erase(size_class);
}

DSPP_INLINE void Pool::fill_with_poison(const Block& block) noexcept {
  if (!poisons_) return;
  if (source_)
    source_->fill(block.data, block.bytes, 0xFF);
  else
    std::memset(block.data, 0xFF, static_cast<std::size_t>(block.bytes));
}

DSPP_INLINE void Pool::link(MemoryBlock<Pool>* block) noexcept {
  block->next = first_;
  if (first_) first_->previous = block;
  first_ = block;
}

DSPP_INLINE void Pool::unlink(MemoryBlock<Pool>* block) noexcept {
  (block->previous ? block->previous->next : first_) = block->next;
  if (block->next) block->next->previous = block->previous;
}

DSPP_INLINE std::string Pool::map_of_memory(Size requested, Category category, const char* label) const {
  const bool by_limit = limit_ > 0 && live_total_ + requested > limit_;
  Size largest_kept = 0;
  for (const auto& [size, blocks] : sizes_)
    if (blocks.kept) largest_kept = size;
  std::string text = "dspp: a Pool needs " + readable_bytes(requested) + " more for " + name_of(category) + " (" +
                     label + "), but " + readable_bytes(live_total_) + " are in use" +
                     (by_limit ? " of a limit of " + readable_bytes(limit_) : " and the machine gives no more") +
                     (remedies_.empty() ? ". Lower the largest below" : ". Use one of the remedies below") +
                     (by_limit ? ", or raise the limit.\n" : ".\n");
  text += "  free under the limit   " +
          (limit_ > 0 ? readable_bytes(limit_ - live_total_) : std::string("no limit set")) +
          "\n  reserved by the Pool   " + readable_bytes(reserved_) + "\n  largest kept block     " +
          readable_bytes(largest_kept) + "\n";
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

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp

#include <dspp/tensor/pool_steps.hpp>
#include <dspp/tensor/pool_timeline.hpp>
#include <dspp/tensor/pool_trace.hpp>
