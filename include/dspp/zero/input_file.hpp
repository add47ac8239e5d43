// SPDX-License-Identifier: Apache-2.0
/// What recomputations keep until backward, in a file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <dspp/autograd/kept_input.hpp>
#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/otherwise.hpp>
#include <dspp/zero/file_window.hpp>

namespace dspp {

/// An input is written beside the forward that goes on, until the next one is kept. With the take of an input the one
/// kept before it is read ahead, since a backward takes them so; another one waits for its read. An input that a disk
/// refused stays in its window, and is written again with the next one. The room of those that are gone is taken again.
///
/// Cost     a copy to a window and one from it, and where an input is taken or dropped while it is written the rest of
///          its write; of a device beside the host, the host waits for its operations before each transfer
/// Memory   windows of the input that is written, until it is taken or the next one is kept, and of the one that is
///          read ahead. Of a file the most that was kept at once, each input with 8 KiB at most, and the gaps between
///          inputs of unlike sizes
/// Throws   Error(file) for what a disk refuses, in the forward or backward that waits for it
template <Device D>
class KeptInputFile : public InputFile<D> {
 public:
  constexpr KeptInputFile() {
    this->keep = keep_input;
    this->take = take_input;
    this->drop = drop_input;
  }
  KeptInputFile(const KeptInputFile&) = delete;
  KeptInputFile& operator=(const KeptInputFile&) = delete;

  /// Before the first input. `memory`: of the windows, which the host reaches.
  ///
  /// Throws   Error(usage) if no folder is named, Error(file) if it takes no file
  constexpr void open(Memory<D>& device, Memory<D>& memory, const OffloadConfig& config) {
    device_ = &device, memory_ = &memory;
    Window window;  // there is none on paper
    window.allocate(memory, 0, Category::activations, label_of_windows);
    if (window.header()) detail::open_offload_file(file_.get_or_make(), std::string(config.folder), config.calls);
  }
  constexpr bool is_open() const { return memory_ != nullptr; }
  /// The bytes of the file.
  constexpr Size bytes() const { return end_; }

 private:
  struct Input {
    std::int64_t number = 0;
    Size offset = 0, bytes = 0;
    constexpr Size end() const { return offset + io::BlockFile::bytes_of(bytes); }
  };
  struct Window : detail::FileWindow<D> {
    std::int64_t number = 0;  ///< of its input; 0: none
    bool is_refused = false;  ///< by the disk
  };
  static constexpr const char* label_of_windows = "window of kept inputs";

  static constexpr KeptInputFile& of(InputFile<D>& file) { return static_cast<KeptInputFile&>(file); }

  static constexpr std::int64_t keep_input(InputFile<D>& file, const Storage<Memory<D>>& from, Size offset,
                                           Size bytes) {
    KeptInputFile& own = of(file);
    own.end_write();
    const Input input{++own.numbers_, own.room_for(bytes), bytes};
    own.inputs_.push_back(input);
    Window& window = own.written_;
    detail::Otherwise unkept([&] { own.release(window), own.end(input.number); });
    own.allocate(window, input);
    D::copy(*own.device_, detail::byte_of<D>(window.storage, window.payload()), detail::byte_of<D>(from, offset),
            bytes);
    own.start_write(input);
    own.end_ = std::max(own.end_, input.end());
    unkept.cancel();
    return input.number;
  }

  static constexpr void take_input(InputFile<D>& file, std::int64_t number, const Storage<Memory<D>>& to) {
    KeptInputFile& own = of(file);
    const Size bytes = own.find(number).bytes;
    Window& window = own.written_.number == number ? own.written_ : own.read_;
    detail::Otherwise unread([&] { own.release(window), own.end(number); });
    if (window.number != number) own.start_read(number);
    if (&window == &own.read_) window.transfer.wait();  // what is being written is in memory
    D::copy(*own.device_, detail::byte_of<D>(to, 0), detail::byte_of<D>(window.storage, window.payload()), bytes);
    unread.cancel();
    own.release(window);
    own.end(number);
    own.read_ahead_of(number);
  }

  static constexpr void drop_input(InputFile<D>& file, std::int64_t number) noexcept {
    KeptInputFile& own = of(file);
    for (Window* window : {&own.written_, &own.read_})
      if (window->number == number) own.release(*window);
    own.end(number);
  }

  constexpr Input& find(std::int64_t number) {
    std::size_t i = inputs_.size();
    while (inputs_[i - 1].number != number) --i;
    return inputs_[i - 1];
  }
  /// An input is needed no longer.
  constexpr void end(std::int64_t number) {
    for (Input* next = &find(number) + 1; next != inputs_.end(); ++next) next[-1] = *next;
    inputs_.pop_back();
  }
  /// The offset of the first room between those that are kept.
  constexpr Size room_for(Size bytes) const {
    Size offset = 0;
    for (bool is_free = false; !is_free;) {
      is_free = true;
      for (const Input& other : inputs_)
        if (offset < other.end() && other.offset < offset + io::BlockFile::bytes_of(bytes))
          offset = other.end(), is_free = false;
    }
    return offset;
  }
  constexpr void allocate(Window& window, const Input& input) {
    window.allocate(*memory_, input.bytes, Category::activations, label_of_windows);
    window.number = input.number;
  }
  constexpr void start_write(const Input& input) {
    std::byte* const header = written_.header();
    if (header == nullptr) return;
    file_->extend(input.end());
    wait_for_operations<D>(*memory_);
    written_.transfer = file_->start_write(input.offset, label(input), header, input.bytes);
  }
  /// Releases the window of what is written now.
  constexpr void end_write() {
    if (written_.is_refused) start_write(find(written_.number));
    written_.is_refused = true;
    written_.transfer.wait();
    release(written_);
  }
  constexpr void start_read(std::int64_t number) {
    const Input& input = find(number);
    release(read_);
    detail::Otherwise unread([&] { release(read_); });
    allocate(read_, input);
    if (std::byte* const header = read_.header()) {
      wait_for_operations<D>(*memory_);  // which used what was in this memory before
      read_.transfer = file_->start_read(input.offset, label(input), header, input.bytes);
    }
    unread.cancel();
  }
  /// The one that was kept before an input, if it is still.
  constexpr void read_ahead_of(std::int64_t number) {
    std::size_t i = inputs_.size();
    while (i > 0 && inputs_[i - 1].number >= number) --i;
    if (i == 0) return;
    const std::int64_t next = inputs_[i - 1].number;
    if (next != written_.number && next != read_.number) start_read(next);
  }
  constexpr void release(Window& window) {
    window.free();
    window.number = 0, window.is_refused = false;
  }
  static constexpr io::BlockLabel label(const Input& input) { return {input.number, 0}; }

  Memory<D>* device_ = nullptr;
  Memory<D>* memory_ = nullptr;
  List<Input> inputs_{};  ///< that are kept, by numbers
  Size end_ = 0;
  std::int64_t numbers_ = 0;
  AtRunTime<io::BlockFile> file_;  ///< declared before the windows, whose transfers end before it
  Window written_{}, read_{};
};

}  // namespace dspp
