// SPDX-License-Identifier: Apache-2.0
/// The optimizer state of a rank's buckets, in the device's memory, the host's, or a file.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/otherwise.hpp>
#include <dspp/io/block_file.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// Up to two moments. Not an array: nvcc does not destroy the elements of array members in constant expressions.
template <class State, Device D>
struct Moments {
  Tensor<State, 1, D> first, second;
  constexpr Tensor<State, 1, D>& operator[](int i) { return i == 0 ? first : second; }
};

/// The optimizer state of the owned elements of a bucket.
template <class State, Device D>
struct OptimizerState {
  Tensor<State, 1, D> master;  ///< if the values are narrower than State
  Moments<State, D> moments;
};

/// The optimizer state of every bucket, by number from 0.
///
/// On disk a bucket has two places in the file: what a step writes goes to the one that does not hold the state before
/// the step, and keep() or forget() says which of the two counts. Windows of the host's memory, which is the device's
/// if that is the Cpu, hold the bucket in use, the one that is read ahead, and the one that is written. They are taken
/// and released at the same calls on paper.
///
/// Cost     on disk, of a device beside the host: the host waits for its operations before each transfer
/// Memory   on disk, of a file twice the state, and of the host at most `windows` buckets' state, each with 12 KiB
/// Throws   Error(file) for what a disk refuses
template <class State, Device D>
class StateStore {
 public:
  static constexpr int windows = 3;

  /// `host`: the host's memory, for Tier::host, and of a device beside the host for Tier::disk.
  constexpr StateStore(Memory<D>& memory, Memory<D>* host, Tier tier, const OffloadConfig& config)
      : memory_(is_in_host(tier) ? host : &memory), tier_(tier) {
    if (tier != Tier::disk || __builtin_is_constant_evaluated()) return;
    folder_.get_or_make() = config.folder;
    calls_ = config.calls;
  }
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;
  constexpr ~StateStore() {
    for (Window& window : windows_) release(window);
  }

  constexpr Tier tier() const { return tier_; }
  /// The bytes of the file.
  constexpr Size disk_bytes() const { return end_; }

  /// Allocates the state of `elements` elements, zeroed.
  ///
  /// Memory   `moments` moments, and a master if `with_master`, of `elements` elements
  constexpr void add(Size elements, bool with_master, int moments) {
    const Contents contents{elements, with_master, moments};
    if (tier_ == Tier::disk) return contents.bytes() == 0 ? add_none() : add_on_disk(contents);
    buckets_.push_back(zeroed(contents));
  }
  /// No state, for a bucket of frozen parameters.
  constexpr void add_none() {
    buckets_.push_back({});
    if (tier_ == Tier::disk) places_.push_back({});
  }

  /// A bucket's state, to read. On disk it is in memory until another bucket is fetched.
  constexpr OptimizerState<State, D>& fetch(std::size_t bucket) {
    if (tier_ != Tier::disk || places_[bucket].contents.elements == 0) return buckets_[bucket];
    return in_window(bucket).state;
  }
  /// The same, to change until another bucket is fetched.
  constexpr OptimizerState<State, D>& change(std::size_t bucket) {
    OptimizerState<State, D>& state = fetch(bucket);
    if (tier_ == Tier::disk)
      if (Window* const window = find(bucket)) window->is_changed = true;
    return state;
  }
  /// How many moments a bucket has.
  constexpr int moments(std::size_t bucket) {
    if (tier_ == Tier::disk) return places_[bucket].contents.moments;
    Moments<State, D>& own = buckets_[bucket].moments;
    return static_cast<int>(static_cast<bool>(own.first)) + static_cast<int>(static_cast<bool>(own.second));
  }

  /// Moves a bucket's state to `memory`, unless it is on a disk. If it throws, all of it is where it was.
  constexpr void move(std::size_t bucket, Memory<D>& memory) {
    if (tier_ == Tier::disk) return;
    OptimizerState<State, D>& own = buckets_[bucket];
    const auto move = [&](const Tensor<State, 1, D>& tensor, const char* label) {
      return tensor ? moved_to(memory, tensor, Category::optimizer, label) : tensor;
    };
    OptimizerState<State, D> moved{move(own.master, "masters"),
                                   {move(own.moments.first, "moments"), move(own.moments.second, "moments")}};
    own = std::move(moved);
  }
  /// Where state rests that was not moved; on a disk, its windows.
  constexpr Memory<D>& memory() const { return *memory_; }

  /// What fails from here to end_step() is kept until then, so that this rank takes part in what the others wait for:
  /// fetched state may be anything.
  constexpr void begin_step() { is_in_step_ = true; }
  /// From here to end_step(), buckets are fetched in the order of their numbers, and the next is read ahead.
  constexpr void read_ahead() {
    write_all();
    reads_ahead_ = true;
  }
  /// The first error since begin_step(), which keep() or forget() must follow; null: none.
  constexpr AtRunTime<std::exception_ptr> end_step() {
    is_in_step_ = reads_ahead_ = false;
    return static_cast<AtRunTime<std::exception_ptr>&&>(failure_);
  }
  /// Writes what was changed, waits for it, and releases all windows.
  constexpr void write_all() {
    leave_all_but(none);
    for (Window& window : windows_) retire(window);
  }
  /// What was written since the last keep() or forget() is the state from now on.
  constexpr void keep() {
    for (Place& place : places_)
      if (place.is_written) place.slot = 1 - place.slot, place.version = place.next_version, place.is_written = false;
  }
  /// The state is again what it was then. Releases all windows.
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
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Contents {
    Size elements = 0;
    bool with_master = false;
    int moments = 0;
    constexpr Size stride() const { return round_up(elements * static_cast<Size>(sizeof(State)), block_alignment); }
    constexpr Size bytes() const { return stride() * (moments + (with_master ? 1 : 0)); }
  };
  struct Place {
    Contents contents{};
    Size offset = 0;                             ///< of the first of two slots
    int slot = 0;                                ///< that holds the state
    std::int64_t version = 0, next_version = 0;  ///< of the state, and of what was written since; 0: zeros, nowhere
    bool is_written = false;                     ///< to the other slot
    constexpr Size slot_offset(bool other) const {
      return offset + ((slot == 1) != other ? io::BlockFile::bytes_of(contents.bytes()) : 0);
    }
  };
  struct Window {
    std::size_t bucket = none;
    Storage<Memory<D>> storage;
    Size begin = 0;  ///< of the block in the storage, which is aligned for the file
    OptimizerState<State, D> state;
    bool is_changed = false, is_writing = false;
    std::int64_t since = 0;  ///< the number of its write
    io::Transfer transfer{};
  };

  static constexpr bool is_in_host(Tier tier) {
    return tier == Tier::host || (tier == Tier::disk && !imitates_host<D>);
  }
  constexpr OptimizerState<State, D> zeroed(const Contents& contents) {
    OptimizerState<State, D> own;
    const Shape<1> extent{{contents.elements}};
    if (contents.with_master) own.master = Tensor<State, 1, D>::zeros(extent, *memory_, Category::optimizer, "masters");
    for (int i = 0; i < contents.moments; ++i)
      own.moments[i] = Tensor<State, 1, D>::zeros(extent, *memory_, Category::optimizer, "moments");
    return own;
  }
  constexpr void add_on_disk(const Contents& contents) {
    buckets_.push_back({});
    places_.push_back(Place{.contents = contents, .offset = end_});
    end_ += 2 * io::BlockFile::bytes_of(contents.bytes());
    change(places_.size() - 1);
  }

  constexpr Window* find(std::size_t bucket) {
    for (Window& window : windows_)
      if (window.bucket == bucket && !window.is_writing) return &window;
    return nullptr;
  }
  constexpr Window& in_window(std::size_t bucket) {
    if (bucket == current_)
      if (Window* const window = find(bucket)) return *window;
    leave_all_but(bucket);
    Window* window = find(bucket);
    if (!window) window = &open(bucket);
    detail::Otherwise unreadable([&] { release(*window); });
    wait_for(*window);
    unreadable.cancel();
    current_ = bucket;
    if (reads_ahead_) {
      std::size_t next = bucket + 1;
      while (next < places_.size() && places_[next].contents.elements == 0) ++next;
      if (next < places_.size() && !find(next)) open(next);
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
  /// A window for the bucket, whose state is under way to it.
  constexpr Window& open(std::size_t bucket) {
    Window* oldest = nullptr;
    Window* free = nullptr;
    for (Window& window : windows_) {
      if (window.bucket == bucket) retire(window);  // its write is under way
      if (window.bucket == none) free = &window;
      if (window.is_writing && (!oldest || window.since < oldest->since)) oldest = &window;
    }
    if (!free) retire(*(free = oldest));
    Place& place = places_[bucket];
    Window& window = *free;
    const Contents& contents = place.contents;
    constexpr Size unit = io::BlockFile::unit, width = sizeof(State);
    window.storage = Storage<Memory<D>>(*memory_, io::BlockFile::bytes_of(contents.bytes()) + unit - block_alignment,
                                        Category::optimizer, "window of offloaded state");
    window.bucket = bucket;
    std::byte* const data = window.storage.data();
    window.begin = data ? (unit - static_cast<Size>(reinterpret_cast<std::uintptr_t>(data) % unit)) % unit : 0;
    Size at = window.begin + unit;
    const auto part = [&] {
      const Size element = at / width;
      at += contents.stride();
      return Tensor<State, 1, D>::view(window.storage, element, Shape<1>{{contents.elements}});
    };
    if (contents.with_master) window.state.master = part();
    for (int i = 0; i < contents.moments; ++i) window.state.moments[i] = part();
    const std::int64_t version = place.is_written ? place.next_version : place.version;
    if (version == 0)
      zero_bytes<D>(window.storage, window.begin, io::BlockFile::bytes_of(contents.bytes()));
    else if (data) {
      wait_for_operations<D>(*memory_);  // which used what was in this memory before
      window.transfer = file().start_read(place.slot_offset(place.is_written), label(bucket, version),
                                          data + window.begin, contents.bytes());
    }
    return window;
  }
  constexpr void leave_all_but(std::size_t bucket) {
    for (Window& window : windows_) {
      if (window.bucket == none || window.bucket == bucket || window.is_writing) continue;
      window.is_changed ? start_write(window) : release(window);
    }
  }
  constexpr void start_write(Window& window) {
    Place& place = places_[window.bucket];
    const std::int64_t version = ++versions_;
    if (std::byte* const data = window.storage.data()) {
      file().extend(place.offset + 2 * io::BlockFile::bytes_of(place.contents.bytes()));
      wait_for_operations<D>(*memory_);
      window.transfer = file().start_write(place.slot_offset(true), label(window.bucket, version), data + window.begin,
                                           place.contents.bytes());
    }
    window.is_writing = true, window.since = ++writes_;
    place.next_version = version, place.is_written = true;
  }
  /// Waits for what was under way, and releases the window. What was not written does not count, and is still there.
  constexpr void retire(Window& window) {
    detail::Otherwise unwritten([&] {
      if (window.is_writing) places_[window.bucket].is_written = false;
      window.is_writing = false;
    });
    wait_for(window);
    unwritten.cancel();
    release(window);
  }
  /// The transfer ends before its memory is given back.
  static constexpr void release(Window& window) {
    window.transfer = {};
    window.state = {};
    window.storage.release();
    window.bucket = none, window.is_changed = window.is_writing = false;
  }
  static constexpr io::BlockLabel label(std::size_t bucket, std::int64_t version) {
    return {static_cast<std::int64_t>(bucket), version};
  }
  io::BlockFile& file() {
    io::BlockFile& file = file_.get_or_make();
    if (file.is_open()) return file;
    if (folder_->empty())
      fail(ErrorCode::usage,
           "dspp: Offload<Optimizer, Disk> needs a folder for a file, but EngineConfig::offload names none. Set "
           "EngineConfig{.offload = {.folder = \"...\"}}.");
    file.open(*folder_, calls_);
    return file;
  }

  Memory<D>* memory_;  ///< of states, or of windows
  Tier tier_;
  List<OptimizerState<State, D>> buckets_;  ///< in memory
  List<Place> places_;                      ///< on disk
  Size end_ = 0;
  std::int64_t writes_ = 0, versions_ = 0;
  std::size_t current_ = none;  ///< the bucket that was fetched last
  bool is_in_step_ = false, reads_ahead_ = false;
  AtRunTime<std::exception_ptr> failure_;
  AtRunTime<std::string> folder_;
  io::BlockCalls* calls_ = nullptr;
  AtRunTime<io::BlockFile> file_;  ///< declared before the windows, whose transfers end before it
  Window windows_[windows];
};

}  // namespace dspp
