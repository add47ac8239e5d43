// SPDX-License-Identifier: Apache-2.0
/// Collectives of ranks that are threads and share a GPU.
///
/// A rank has two events for each operation that can be under way, which the others' streams wait for:
///
///   ready    on its stream, when it posts: what it issued before has written its memory
///   moved    on its communication stream: it accesses no other rank's memory any more
///
/// Of an all-reduce a rank sums its slice, and writes it to all ranks.
///
/// Who waits for an event has seen, through the table of the group, that it was recorded: since every wait is for work
/// that was issued before it, no order of the streams can deadlock.
///
/// A digest of a sum (SumDigest) is not made.
///
/// Bytes     as <dspp/comm/threads/share.hpp> on the Cpu, within the device
#pragma once

#include <array>
#include <utility>

#include <dspp/cuda/threads.hpp>
#include <kernels/copy.cuh>
#include <kernels/cuda_memory.cuh>
#include <kernels/rank_sum.cuh>

namespace dspp {

namespace gpu {

/// The events of one rank in one group.
class RankEvents {
 public:
  enum Which { ready, moved };

  RankEvents() {
    try {
      for (cudaEvent_t& event : events_) check({"open"}, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    } catch (...) {
      close();
      throw;
    }
  }
  ~RankEvents() { close(); }
  RankEvents(const RankEvents&) = delete;
  RankEvents& operator=(const RankEvents&) = delete;

  cudaEvent_t of(Which which, std::uint64_t operation) const {
    return events_[static_cast<std::size_t>(which) * slots + operation % slots];
  }

  /// How many operations the rank's stream had waited for when it recorded `ready`.
  std::uint64_t& completed_before(std::uint64_t operation) { return completed_[operation % slots]; }
  std::uint64_t completed_before(std::uint64_t operation) const { return completed_[operation % slots]; }

 private:
  void close() noexcept {
    for (const cudaEvent_t event : events_)
      if (event != nullptr) cudaEventDestroy(event);
  }

  static constexpr std::size_t slots = dspp::detail::operations_in_flight;
  std::array<cudaEvent_t, 2 * slots> events_{};
  std::array<std::uint64_t, slots> completed_{};
};

class CudaShare final : public dspp::detail::RankShare {
 public:
  CudaShare(CudaMemory& memory, dspp::detail::ThreadTable& table, int rank)
      : memory_(memory), table_(table), rank_(rank), size_(table.size()), events_(std::make_shared<RankEvents>()) {
    if (size_ > most_ranks_on_gpu)
      fail(ErrorCode::usage, "dspp: a GPU is shared by at most " + std::to_string(most_ranks_on_gpu) + " ranks, but " +
                                 table.name + " has " + std::to_string(size_) + ". Start fewer ranks, or processes.");
    table_.shown[static_cast<std::size_t>(rank_)] = events_;
    memory_.tell_transfers();
  }

  bool is_asynchronous() const override { return true; }

  void issue(std::uint64_t operation) override {
    check({"post"}, cudaEventRecord(events_->of(RankEvents::ready, operation), own()));
    events_->completed_before(operation) = completed_;
  }

  bool run(std::uint64_t operation, Size) override {
    std::atomic<bool>& busy = table_.busy[static_cast<std::size_t>(rank_)].now;
    busy.store(true);
    const bool done = guarded([&] {
      const Range range(memory_, table_.slot(rank_, operation));
      const Posted& mine = table_.slot(rank_, operation);
      begin(operation);
      CudaClock* const clock = size_ > 1 && works(mine) ? memory_.clock() : nullptr;
      if (clock) clock->begin_transfer(name_of(mine.collective), name_of(mine.purpose), beside());
      move(operation);
      if (clock) clock->end_transfer(beside());
      check({"move"}, cudaEventRecord(events_->of(RankEvents::moved, operation), beside()));
      return true;
    });
    busy.store(false);
    return done;
  }

  bool complete(std::uint64_t operation) override {
    return guarded([&] {
      const Posted& mine = table_.slot(rank_, operation);
      const bool unread = dspp::detail::is_unread(mine, rank_);
      for (int r = 0; r < size_; ++r)
        if (r == rank_ ? works(mine) : !unread) wait(own(), r, RankEvents::moved, operation);
      completed_ = operation + 1;
      return true;
    });
  }

  Size finish() override { return std::exchange(received_bytes_, 0); }

  void stop() noexcept override {
    cudaDeviceSynchronize();
    cudaGetLastError();  // what failed is known
  }

 private:
  using Posted = dspp::detail::Posted;
  using PostedPair = dspp::detail::PostedPair;

  /// "all_gather parameter" in the timeline.
  class Range {
   public:
    Range(CudaMemory& memory, const Posted& mine)
        : memory_(memory), number_(memory.begin_range(name_of(mine.collective), name_of(mine.purpose))) {}
    ~Range() { memory_.end_range(number_); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    CudaMemory& memory_;
    std::uint64_t number_;
  };

  cudaStream_t own() const { return stream_of(memory_); }
  cudaStream_t beside() const { return communication_stream_of(memory_); }

  /// f() unless the group has failed; what it throws fails the group.
  template <class F>
  bool guarded(F f) noexcept {
    dspp::detail::ThreadFailureState& failures = *table_.failures;
    if (failures.failed()) return false;
    try {
      try {
        return f();
      } catch (const Error& error) {
        failures.fail(error.code(), error.what(), table_.world_rank(rank_));
      }
    } catch (const std::bad_alloc&) {
      failures.fail(ErrorCode::out_of_memory, dspp::detail::no_memory_words, table_.world_rank(rank_));
    }
    return false;
  }

  const RankEvents& events_of(int rank) const {
    return *static_cast<const RankEvents*>(table_.shown[static_cast<std::size_t>(rank)].get());
  }
  void wait(cudaStream_t stream, int rank, RankEvents::Which which, std::uint64_t operation) const {
    check({"wait"}, cudaStreamWaitEvent(stream, events_of(rank).of(which, operation), 0));
  }

  /// Whether this rank moves anything.
  bool works(const Posted& mine) const {
    switch (mine.collective) {
      case Collective::barrier: return false;
      case Collective::broadcast: return rank_ != mine.root;
      case Collective::send: return rank_ == dspp::detail::receiver;
      default: return true;
    }
  }
  bool reads(const Posted& mine, int r) const {
    if (mine.collective == Collective::broadcast) return r == mine.root;
    return r != rank_;
  }

  /// What is issued next comes after what touched the memory that it touches: of each rank it reads, what that rank
  /// issued before it posted; and what every rank moved in the operation before, hence in all before, since it may have
  /// read what this rank now writes. That is waited for unless a rank that had completed it before it posted, the one
  /// read or else this one, is waited for anyway.
  void begin(std::uint64_t operation) const {
    const Posted& mine = table_.slot(rank_, operation);
    if (!works(mine)) return;
    wait(beside(), rank_, RankEvents::ready, operation);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const bool is_read = reads(mine, r);
      if (is_read) wait(beside(), r, RankEvents::ready, operation);
      if (events_of(is_read ? r : rank_).completed_before(operation) < operation)
        wait(beside(), r, RankEvents::moved, operation - 1);
    }
  }

  void move(std::uint64_t operation) {
    switch (table_.slot(rank_, operation).collective) {
      case Collective::all_reduce: return all_reduce(operation);
      case Collective::reduce_scatter: return reduce_scatter(operation);
      case Collective::all_gather: return all_gather(operation);
      case Collective::all_to_all: return all_to_all(operation);
      case Collective::broadcast: return broadcast(operation);
      case Collective::send: return send(operation);
      case Collective::barrier: return;
    }
  }

  void all_reduce(std::uint64_t operation) {
    if (size_ == 1) return;
    const PostedPair& mine = pair(rank_, operation, 0);
    const Size begin = dspp::detail::slice_of_sum(mine.count, rank_, size_);
    const Size count = dspp::detail::slice_of_sum(mine.count, rank_ + 1, size_) - begin;
    const auto memory = [&](int r) { return pair(r, operation, 0).out; };
    RankPlaces places;
    for (int r = 0; r < size_; ++r) places.of[places.ranks++] = at(memory(r), begin * bytes_of(mine.type));
    sum(mine.type, rank_ + 1, 1, memory, begin, count, places);
    received_bytes_ += (mine.count - count) * bytes_of(mine.type);
  }

  void reduce_scatter(std::uint64_t operation) {
    const Posted& mine = table_.slot(rank_, operation);
    for (std::size_t i = 0; i < mine.pairs.size(); ++i) {
      const PostedPair& p = mine.pairs[i];
      if (size_ == 1)
        copy(p.out, p.in, p.count * bytes_of(p.type));
      else
        sum(
            p.type, rank_, -1, [&](int r) { return pair(r, operation, i).in; }, p.count * rank_, p.count,
            RankPlaces{{p.out}, 1});
    }
  }

  void all_gather(std::uint64_t operation) {
    const Posted& mine = table_.slot(rank_, operation);
    for (std::size_t i = 0; i < mine.pairs.size(); ++i) {
      const PostedPair& p = mine.pairs[i];
      const Size bytes = p.count * bytes_of(p.type);
      copy(at(p.out, rank_ * bytes), p.in, bytes);
      for_others([&](int r) { read(at(p.out, r * bytes), pair(r, operation, i).in, bytes); });
    }
  }

  void all_to_all(std::uint64_t operation) {
    const auto own_part = static_cast<std::size_t>(rank_);
    const Posted& mine = table_.slot(rank_, operation);
    const PostedPair& kept = mine.pairs[own_part];
    const Size element = bytes_of(kept.type);
    copy(kept.out, kept.in, kept.count * element);
    for_others([&](int r) {
      const PostedPair& p = mine.pairs[static_cast<std::size_t>(r)];
      read(p.out, pair(r, operation, own_part).in, p.received * element);
    });
  }

  void broadcast(std::uint64_t operation) {
    const Posted& mine = table_.slot(rank_, operation);
    if (rank_ == mine.root) return;
    const PostedPair& p = mine.pairs[0];
    read(p.out, pair(mine.root, operation, 0).in, p.count * bytes_of(p.type));
  }

  void send(std::uint64_t operation) {
    if (rank_ == dspp::detail::sender) return;
    const PostedPair& mine = pair(dspp::detail::receiver, operation, 0);
    read(mine.out, pair(dspp::detail::sender, operation, 0).in, mine.count * bytes_of(mine.type));
  }

  /// From the next rank onwards, so that not all read the same one at once.
  template <class F>
  void for_others(F f) const {
    for (int step = 1; step < size_; ++step) f((rank_ + step) % size_);
  }

  const PostedPair& pair(int rank, std::uint64_t operation, std::size_t i) const {
    return table_.slot(rank, operation).pairs[i];
  }
  static std::byte* at(void* data, Size bytes) { return static_cast<std::byte*>(data) + bytes; }
  static const std::byte* at(const void* data, Size bytes) { return static_cast<const std::byte*>(data) + bytes; }

  void copy(void* to, const void* from, Size bytes) const {
    if (to == from || bytes == 0) return;
    if (memory_.is_mapped(static_cast<const std::byte*>(to))) return copy_mapped(beside(), to, from, bytes);
    check_issued({"copy", 1, bytes}, beside(),
                 cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, beside()));
  }
  void read(void* to, const void* from, Size bytes) {
    copy(to, from, bytes);
    received_bytes_ += bytes;
  }
  /// Of elements [first, first + count) of every rank's memory: in rank order, or in ring order from rank `start`.
  template <class MemoryOf>
  void sum(ElementType type, int start, int step, MemoryOf memory_of, Size first, Size count, const RankPlaces& to) {
    RankSources sources;
    sources.ranks = size_;
    const bool ring = table_.sum_order == SumOrder::transport;
    for (int i = 0; i < size_; ++i)
      sources.of[i] = at(static_cast<const void*>(memory_of(ring ? (start + step * i + size_ * size_) % size_ : i)),
                         first * bytes_of(type));
    rank_sum(beside(), type, sources, count, to);
    received_bytes_ += (size_ - 1) * count * bytes_of(type);
  }

  CudaMemory& memory_;
  dspp::detail::ThreadTable& table_;
  int rank_, size_;
  std::uint64_t completed_ = 0;
  Size received_bytes_ = 0;
  std::shared_ptr<RankEvents> events_;
};

}  // namespace gpu

DSPP_CUDA_INLINE detail::MakeShare cuda_share(CudaMemory& memory) {
  return [&memory](detail::ThreadTable& table, int rank) -> std::unique_ptr<detail::RankShare> {
    return std::make_unique<gpu::CudaShare>(memory, table, rank);
  };
}

}  // namespace dspp
