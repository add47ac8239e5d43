// SPDX-License-Identifier: Apache-2.0
/// The optimizer state of a rank's buckets, in the device's memory, the host's, or a file.
#pragma once

#include <exception>
#include <utility>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/tensor/tensor.hpp>
#include <dspp/zero/offload_file.hpp>

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

/// The optimizer state of every bucket, by number from 0; of one that is trained, a block of a file if it is on a disk.
///
/// Memory   on disk, that of an OffloadFile: windows of the host's memory, which is the device's if that is the Cpu
/// Throws   Error(file) for what a disk refuses
template <class State, Device D>
class StateStore {
 public:
  /// `host`: the host's memory, for Tier::host, and of a device beside the host for Tier::disk.
  constexpr StateStore(Memory<D>& memory, Memory<D>* host, Tier tier, const OffloadConfig& config)
      : memory_(&memory),
        host_(host),
        tier_(tier),
        divided_(config.optimizer),
        file_({Category::optimizer, "window of offloaded state"}) {
    if (tier == Tier::disk) file_.open(imitates_host<D> ? memory : *host, config);
  }

  constexpr Tier tier() const { return tier_; }
  /// The bytes of the file.
  constexpr Size disk_bytes() const { return file_.bytes(); }

  /// Allocates the state of `elements` elements, zeroed.
  ///
  /// Memory   `moments` moments, and a master if `with_master`, of `elements` elements
  constexpr void add(Size elements, bool with_master, int moments) {
    buckets_.push_back({});
    if (tier_ == Tier::disk) {
      contents_.push_back({elements, with_master, moments});
      file_.add(contents_.back().bytes(), true);
      if (contents_.back().bytes() > 0) file_.change(contents_.size() - 1);
      return;
    }
    OptimizerState<State, D>& own = buckets_.back();
    const Size bytes = elements * static_cast<Size>(sizeof(State)) * (moments + (with_master ? 1 : 0));
    Memory<D>& memory = tier_ == Tier::host && divided_.moves(bytes) ? *host_ : *memory_;
    if (tier_ == Tier::host) resting_.push_back(&memory);
    const auto zeros = [&](const char* label) {
      return Tensor<State, 1, D>::zeros(Shape<1>{{elements}}, memory, Category::optimizer, label);
    };
    if (with_master) own.master = zeros("masters");
    for (int i = 0; i < moments; ++i) own.moments[i] = zeros("moments");
  }
  /// No state, for a bucket of frozen parameters.
  constexpr void add_none() {
    buckets_.push_back({});
    if (tier_ == Tier::host) resting_.push_back(memory_);
    if (tier_ != Tier::disk) return;
    contents_.push_back({});
    file_.add(0, false);
  }

  /// A bucket's state, to read. On disk it is in memory until another bucket is fetched.
  constexpr OptimizerState<State, D>& fetch(std::size_t bucket) {
    if (tier_ != Tier::disk || file_.bytes_of(bucket) == 0) return buckets_[bucket];
    const Contents& contents = contents_[bucket];
    Size at = 0;
    const auto part = [&] {
      const Size begin = at;
      at += contents.stride();
      return file_.template fetch<State>(bucket, begin, contents.elements);
    };
    fetched_ = {};
    if (contents.with_master) fetched_.master = part();
    for (int i = 0; i < contents.moments; ++i) fetched_.moments[i] = part();
    return fetched_;
  }
  /// The same, to change until another bucket is fetched.
  constexpr OptimizerState<State, D>& change(std::size_t bucket) {
    if (tier_ == Tier::disk && file_.bytes_of(bucket) > 0) file_.change(bucket);
    return fetch(bucket);
  }
  /// How many moments a bucket has.
  constexpr int moments(std::size_t bucket) {
    if (tier_ == Tier::disk) return contents_[bucket].moments;
    Moments<State, D>& own = buckets_[bucket].moments;
    return static_cast<int>(static_cast<bool>(own.first)) + static_cast<int>(static_cast<bool>(own.second));
  }

  /// Of state on a disk, as those of OffloadFile.
  constexpr void begin_step() { file_.begin_step(); }
  constexpr void read_in_order() { fetched_ = {}, file_.read_in_order(); }
  constexpr AtRunTime<std::exception_ptr> end_step() { return file_.end_step(); }
  constexpr void write_all() { fetched_ = {}, file_.write_all(); }
  constexpr void keep() { file_.keep(); }
  constexpr void forget() { fetched_ = {}, file_.forget(); }
  constexpr void settle() { fetched_ = {}, file_.settle(); }

  /// Moves a bucket's state to `memory`, unless it is on a disk. If it throws, all of it is where it was.
  constexpr void move(std::size_t bucket, Memory<D>& memory) {
    if (tier_ == Tier::disk) return;
    OptimizerState<State, D>& own = buckets_[bucket];
    const auto move = [&](const Tensor<State, 1, D>& tensor, const char* label) {
      if (!tensor) return tensor;
      return moved_to(memory, tensor, Category::optimizer, label);
    };
    OptimizerState<State, D> moved{move(own.master, "masters"),
                                   {move(own.moments.first, "moments"), move(own.moments.second, "moments")}};
    own = std::move(moved);
  }
  /// Where a bucket's state rests that was not moved, unless it is on a disk.
  constexpr Memory<D>& resting(std::size_t bucket) const { return tier_ == Tier::host ? *resting_[bucket] : *memory_; }

 private:
  struct Contents {
    Size elements = 0;
    bool with_master = false;
    int moments = 0;
    constexpr Size stride() const { return round_up(elements * static_cast<Size>(sizeof(State)), block_alignment); }
    constexpr Size bytes() const { return stride() * (moments + (with_master ? 1 : 0)); }
  };

  Memory<D>* memory_;
  Memory<D>* host_;
  Tier tier_;
  OffloadDivision divided_;
  List<Memory<D>*> resting_;                ///< of each bucket, where some are in the host's
  List<OptimizerState<State, D>> buckets_;  ///< in memory
  List<Contents> contents_;                 ///< on disk
  OffloadFile<D> file_;
  OptimizerState<State, D> fetched_;  ///< on a window
};

}  // namespace dspp
