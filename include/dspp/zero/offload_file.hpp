// SPDX-License-Identifier: Apache-2.0
/// Blocks of buckets that rest in a file, and windows of memory on those in use.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/otherwise.hpp>
#include <dspp/zero/file_window.hpp>

namespace dspp {

/// A block of bytes for each bucket, by number from 0. A block has two places in the file: what is written goes to the
/// one that does not hold the block before, and keep() or forget() says which of the two counts. Windows hold the block
/// in use, the one that is read ahead, and the one that is written. They are taken and released at the same calls on
/// paper. A tensor on a window may outlive it, as those of gathers under way do.
///
/// Cost     of a device beside the host, the host waits for its operations before each transfer
/// Memory   of a file twice the blocks, and at most `windows` of them and those of such tensors, each with 12 KiB
/// Throws   Error(file) for what a disk refuses
template <Device D>
class OffloadFile {
 public:
  static constexpr int windows = 3;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// For windows, of which `category` and `label` say what they hold.
  struct Uses {
    Category category;
    const char* label;
  };

  constexpr explicit OffloadFile(const Uses& uses) : uses_(uses) {}
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;
  constexpr ~OffloadFile() {
    for (Window& window : windows_) release(window);
  }
  /// Before the first block. `memory`: of the windows, which the host reaches.
  constexpr void open(Memory<D>& memory, const OffloadConfig& config) {
    memory_ = &memory;
    if (__builtin_is_constant_evaluated()) return;
    folder_.get_or_make() = config.folder;
    calls_ = config.calls;
  }

  /// The bytes of the file.
  constexpr Size bytes() const { return end_; }
  constexpr Size bytes_of(std::size_t block) const { return places_[block].bytes; }

  /// A block of zeros, or of no bytes, whose room is taken when it is first changed. `is_updated`: steps update it.
  constexpr void add(Size bytes, bool is_updated) {
    places_.push_back(Place{.bytes = bytes, .offset = end_, .is_updated = is_updated});
    if (bytes > 0) end_ += 2 * io::BlockFile::bytes_of(bytes);
  }
  /// Elements of a block that has some, from `offset` bytes on, to read: of the window, until another block is fetched.
  template <class T>
  constexpr Tensor<T, 1, D> fetch(std::size_t block, Size offset, Size elements) {
    const Window& window = in_window(block);
    const Size at = window.payload() + offset;
    return Tensor<T, 1, D>::view(window.storage, at / static_cast<Size>(sizeof(T)), Shape<1>{{elements}});
  }
  /// What is fetched next of the block is changed until another block is fetched.
  constexpr void change(std::size_t block) { in_window(block).is_changed = true; }
  /// Reads a block ahead of its use, unless one is read ahead, or none is in a file.
  constexpr void read_ahead(std::size_t block) {
    if (places_.empty() || block == current_ || places_[block].bytes == 0 || find(block)) return;
    for (const Window& window : windows_)
      if (window.block != none && window.block != current_ && !window.is_writing) return;
    open_window(block);
  }

  /// What fails from here to end_step() is kept until then, so that this rank takes part in what the others wait for:
  /// what is fetched may be anything.
  constexpr void begin_step() { is_in_step_ = true; }
  /// From here to end_step(), blocks that steps update are fetched in the order of their numbers, and the next is read
  /// ahead.
  constexpr void read_in_order() {
    write_all();
    reads_in_order_ = true;
  }
  /// The first error since begin_step(), which keep() or forget() must follow; null: none.
  constexpr AtRunTime<std::exception_ptr> end_step() {
    is_in_step_ = reads_in_order_ = false;
    return static_cast<AtRunTime<std::exception_ptr>&&>(failure_);
  }
  /// Writes what was changed, waits for it, and releases all windows.
  constexpr void write_all() {
    leave_all_but(none);
    for (Window& window : windows_) retire(window);
  }
  /// What was written since the last keep() or forget() counts from now on.
  constexpr void keep() {
    for (Place& place : places_)
      if (place.is_written) place.slot = 1 - place.slot, place.version = place.next_version, place.is_written = false;
  }
  /// Blocks are again what they were then. Releases all windows.
  constexpr void forget() {
    for (Window& window : windows_) release(window);
    for (Place& place : places_) place.is_written = false;
  }
  /// Writes and keeps what was changed, and releases all windows. If it throws, what could not be written is still
  /// there and counts as changed.
  [[gnu::noinline]] constexpr void settle() {
    write_all();
    keep();
  }

 private:
  struct Place {
    Size bytes = 0;
    Size offset = 0;  ///< of the first of two slots
    bool is_updated = true;
    int slot = 0;                                ///< that holds the block
    std::int64_t version = 0, next_version = 0;  ///< of the block, and of what was written since; 0: zeros, nowhere
    bool is_written = false;                     ///< to the other slot
    constexpr Size slot_offset(bool other) const {
      return offset + ((slot == 1) != other ? io::BlockFile::bytes_of(bytes) : 0);
    }
  };
  struct Window : detail::FileWindow<D> {
    std::size_t block = none;
    bool is_changed = false, is_writing = false;
    std::int64_t since = 0;  ///< the number of its write
  };

  constexpr Window* find(std::size_t block) {
    for (Window& window : windows_)
      if (window.block == block && !window.is_writing) return &window;
    return nullptr;
  }
  constexpr Window& in_window(std::size_t block) {
    if (block == current_)
      if (Window* const window = find(block)) return *window;
    leave_all_but(block);
    Window* window = find(block);
    if (!window) window = &open_window(block);
    detail::Otherwise unreadable([&] { release(*window); });
    wait_for(*window);
    unreadable.cancel();
    current_ = block;
    if (reads_in_order_) {
      std::size_t next = block + 1;
      while (next < places_.size() && (places_[next].bytes == 0 || !places_[next].is_updated)) ++next;
      if (next < places_.size() && !find(next)) open_window(next);
    }
    return *window;
  }
  /// Within a step, keeps what failed.
  constexpr void wait_for(Window& window) {
    if (!is_in_step_) return window.transfer.wait();
    try {
      window.transfer.wait();
    } catch (...) {
      if (!failure_) failure_.get_or_make() = std::current_exception();
    }
  }
  /// A window for the block, which is under way to it.
  constexpr Window& open_window(std::size_t block) {
    Window* oldest = nullptr;
    Window* free = nullptr;
    for (Window& window : windows_) {
      if (window.block == block) retire(window);  // its write is under way
      if (window.block == none) free = &window;
      if (window.is_writing && (!oldest || window.since < oldest->since)) oldest = &window;
    }
    if (!free) retire(*(free = oldest));
    const Place& place = places_[block];
    Window& window = *free;
    window.allocate(*memory_, place.bytes, uses_.category, uses_.label);
    window.block = block;
    detail::Otherwise unread([&] { release(window); });
    const std::int64_t version = place.is_written ? place.next_version : place.version;
    if (version == 0) {
      zero_bytes<D>(window.storage, window.begin, io::BlockFile::bytes_of(place.bytes));
    } else if (std::byte* const data = window.header()) {
      wait_for_operations<D>(*memory_);  // which used what was in this memory before
      window.transfer =
          file().start_read(place.slot_offset(place.is_written), label(block, version), data, place.bytes);
    }
    unread.cancel();
    return window;
  }
  constexpr void leave_all_but(std::size_t block) {
    for (Window& window : windows_) {
      if (window.block == none || window.block == block || window.is_writing) continue;
      window.is_changed ? start_write(window) : release(window);
    }
  }
  constexpr void start_write(Window& window) {
    Place& place = places_[window.block];
    const std::int64_t version = ++versions_;
    if (std::byte* const data = window.header()) {
      file().extend(place.offset + 2 * io::BlockFile::bytes_of(place.bytes));
      wait_for_operations<D>(*memory_);
      window.transfer = file().start_write(place.slot_offset(true), label(window.block, version), data, place.bytes);
    }
    window.is_writing = true, window.since = ++writes_;
    place.next_version = version, place.is_written = true;
  }
  /// Waits for what was under way, and releases the window. What was not written does not count, and is still there.
  constexpr void retire(Window& window) {
    detail::Otherwise unwritten([&] {
      if (window.is_writing) places_[window.block].is_written = false;
      window.is_writing = false;
    });
    wait_for(window);
    unwritten.cancel();
    release(window);
  }
  static constexpr void release(Window& window) {
    window.free();
    window.block = none, window.is_changed = window.is_writing = false;
  }
  static constexpr io::BlockLabel label(std::size_t block, std::int64_t version) {
    return {static_cast<std::int64_t>(block), version};
  }
  io::BlockFile& file() {
    io::BlockFile& file = file_.get_or_make();
    if (!file.is_open()) detail::open_offload_file(file, *folder_, calls_);
    return file;
  }

  Uses uses_;
  Memory<D>* memory_ = nullptr;
  List<Place> places_;
  Size end_ = 0;
  std::int64_t writes_ = 0, versions_ = 0;
  std::size_t current_ = none;  ///< the block that was fetched last
  bool is_in_step_ = false, reads_in_order_ = false;
  AtRunTime<std::exception_ptr> failure_;
  AtRunTime<std::string> folder_;
  io::BlockCalls* calls_ = nullptr;
  AtRunTime<io::BlockFile> file_;  ///< declared before the windows, whose transfers end before it
  Window windows_[windows];
};

}  // namespace dspp
