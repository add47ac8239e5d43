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
/// kept before it is read ahead, since a backward takes them so; another one waits for its read. Blocks lie in the file
/// as on a stack.
///
/// Cost     a copy to a window and one from it; of a device beside the host, the host waits for its operations before
///          each transfer
/// Memory   windows of the input that is written, until it is taken or the next one is kept, and of the one that is
///          read ahead. Of a file the most that was kept at once, each input with 8 KiB at most
/// Throws   Error(usage) if no folder is named, Error(file) for what a disk refuses, in the forward or backward that
///          waits for it
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
  constexpr void open(Memory<D>& device, Memory<D>& memory, const OffloadConfig& config) {
    device_ = &device, memory_ = &memory, calls_ = config.calls;
    if (!__builtin_is_constant_evaluated()) folder_.get_or_make() = config.folder;
  }
  constexpr bool is_open() const { return memory_ != nullptr; }
  /// The bytes of the file.
  constexpr Size bytes() const { return end_; }

 private:
  struct Input {
    std::int64_t number = 0;
    Size offset = 0, bytes = 0;
    bool is_kept = true;
    constexpr Size end() const { return offset + io::BlockFile::bytes_of(bytes); }
  };
  struct Window : detail::FileWindow<D> {
    std::int64_t number = 0;  ///< of its input; 0: none
  };

  static constexpr KeptInputFile& of(InputFile<D>& file) { return static_cast<KeptInputFile&>(file); }

  static constexpr std::int64_t keep_input(InputFile<D>& file, const Storage<Memory<D>>& from, Size offset,
                                           Size bytes) {
    KeptInputFile& own = of(file);
    detail::Otherwise unwritten([&] { own.release(own.written_); });
    own.written_.transfer.wait();
    own.release(own.written_);
    const Input input{++own.numbers_, own.inputs_.empty() ? 0 : own.inputs_.back().end(), bytes};
    own.inputs_.push_back(input);
    detail::Otherwise unkept([&] { own.end(input.number); });
    Window& window = own.written_;
    own.allocate(window, input);
    D::copy(*own.device_, detail::byte_of<D>(window.storage, window.payload()), detail::byte_of<D>(from, offset),
            bytes);
    own.end_ = std::max(own.end_, input.end());
    if (std::byte* const header = window.header()) {
      io::BlockFile& blocks = own.file_.get_or_make();
      if (!blocks.is_open()) detail::open_offload_file(blocks, *own.folder_, own.calls_);
      blocks.extend(own.end_);
      wait_for_operations<D>(*own.memory_);
      window.transfer = blocks.start_write(input.offset, label(input), header, bytes);
    }
    unkept.cancel(), unwritten.cancel();
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
  /// An input is needed no longer, and so is the room of it and of others behind the last that is kept.
  constexpr void end(std::int64_t number) {
    find(number).is_kept = false;
    while (!inputs_.empty() && !inputs_.back().is_kept) inputs_.pop_back();
  }
  constexpr void allocate(Window& window, const Input& input) {
    window.allocate(*memory_, input.bytes, Category::activations, "window of kept inputs");
    window.number = input.number;
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
    while (i > 0 && (inputs_[i - 1].number >= number || !inputs_[i - 1].is_kept)) --i;
    if (i == 0) return;
    const std::int64_t next = inputs_[i - 1].number;
    if (next != written_.number && next != read_.number) start_read(next);
  }
  constexpr void release(Window& window) {
    window.free();
    window.number = 0;
  }
  static constexpr io::BlockLabel label(const Input& input) { return {input.number, 0}; }

  Memory<D>* device_ = nullptr;
  Memory<D>* memory_ = nullptr;
  List<Input> inputs_{};  ///< by numbers; the last one is kept
  Size end_ = 0;
  std::int64_t numbers_ = 0;
  AtRunTime<std::string> folder_;
  io::BlockCalls* calls_ = nullptr;
  AtRunTime<io::BlockFile> file_;  ///< declared before the windows, whose transfers end before it
  Window written_{}, read_{};
};

}  // namespace dspp
