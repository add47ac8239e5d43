// SPDX-License-Identifier: Apache-2.0
/// One rank's share of an operation of a thread group in host memory: what it sums and what it copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <dspp/comm/rank_sum.hpp>
#include <dspp/comm/threads/rank_share.hpp>
#include <dspp/comm/threads/streamed_copy.hpp>

namespace dspp::detail {

/// Sums and copies directly between the ranks' buffers, without temporaries; counts the bytes that come from other
/// ranks.
///
/// Whoever has what several ranks are to get writes it to all of them, piece by piece while it is in a cache: a rank's
/// sums of an all-reduce, its part of an all-gather. Each byte is then read once.
///
/// Under SumOrder::transport each slice is added in ring order: in an all-reduce from the rank after its owner onwards,
/// in a reduce-scatter from the owner backwards.
class ThreadShare final : public RankShare {
 public:
  ThreadShare(ThreadTable& table, int rank)
      : table_(table),
        rank_(rank),
        size_(table.size()),
        sources_(static_cast<std::size_t>(size_)),
        places_(static_cast<std::size_t>(size_)) {}

  bool run(std::uint64_t operation, Size most_bytes) override;
  Size finish() override { return std::exchange(received_bytes_, 0); }

 private:
  static constexpr Size tile_bytes = 128 * 1024;            // a part of any second cache
  static constexpr Size sums_bytes = 8 * 1024;              // a part of any first cache
  static constexpr Size streamed_sums_bytes = 32 * 1024;    // reads and streams in longer turns
  static constexpr Size copy_bytes = 4 * 1024 * 1024;       // a failure is noticed within the time of one copy
  static constexpr Size streamed_bytes = 64 * 1024 * 1024;  // more than a core's share of any cache

  /// Whether run() ends before it goes on with so many bytes: the group has failed, or others have their turn.
  bool stops(Size bytes) {
    if (table_.failures->failed() || left_bytes_ <= 0) return true;
    left_bytes_ -= bytes;
    return false;
  }
  const PostedPair& pair(int rank, std::uint64_t operation, std::size_t i) const {
    return table_.slot(rank, operation).pairs[i];
  }
  Size slice_begin(Size count, int rank) const { return slice_of_sum(count, rank, size_); }
  static Size tile_elements(ElementType type) { return tile_bytes / bytes_of(type); }
  static std::byte* advance(void* data, Size bytes) { return static_cast<std::byte*>(data) + bytes; }
  static const std::byte* advance(const void* data, Size bytes) { return static_cast<const std::byte*>(data) + bytes; }

  bool go_on(std::uint64_t operation);
  bool all_reduce(std::uint64_t operation);
  bool reduce_scatter(std::uint64_t operation);
  bool all_gather(std::uint64_t operation);
  bool all_to_all(std::uint64_t operation);
  bool broadcast(std::uint64_t operation);
  bool send(std::uint64_t operation);

  /// From at_ on, as write() does. Besides sum() and write(), the only place that accesses other ranks' memory.
  bool read(void* to, const void* from, Size bytes);

  /// The same bytes to `offset` of every place. Of at least streamed_bytes in `whole`, those that the operation writes
  /// on a rank, past the caches.
  bool write(const void* from, Size bytes, Size offset, Size whole);

  /// The sums of the elements [at, at + count) of the sources to `offset` bytes of the first `places`. May be called
  /// with places that are sources.
  void sum(ElementType type, Size at, Size count, int places, Size offset, Size whole);

  /// What sum() adds: `memory(r)` of every rank r, in rank order, or in ring order from rank `first` onwards.
  template <class MemoryOf>
  void set_sources(int first, int step, MemoryOf memory) {
    const bool ring = table_.sum_order == SumOrder::transport;
    for (int i = 0; i < size_; ++i)
      sources_[static_cast<std::size_t>(i)] = memory(ring ? (first + step * i + size_ * size_) % size_ : i);
  }
  /// What sum() and write() write to: `memory(r)` of every rank r, this one's first.
  template <class MemoryOf>
  void set_places(MemoryOf memory) {
    for (int step = 0; step < size_; ++step) places_[static_cast<std::size_t>(step)] = memory((rank_ + step) % size_);
  }

  static void copy(void* to, const void* from, Size bytes, Size whole = 0) {
    if (to == from || bytes == 0) return;
    if (whole >= streamed_bytes)
      streamed_copy(to, from, bytes);
    else
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  ThreadTable& table_;
  int rank_;
  int size_;
  Size received_bytes_ = 0;
  Size left_bytes_ = 0;   ///< of this turn
  std::size_t part_ = 0;  ///< where run() goes on: the pair, or the step of an all-to-all
  Size at_ = 0;           ///< in it
  std::vector<const void*> sources_;
  std::vector<void*> places_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool ThreadShare::run(std::uint64_t operation, Size most_bytes) {
  struct Reading {
    std::atomic<bool>& now;
    explicit Reading(std::atomic<bool>& flag) : now(flag) { now.store(true); }
    ~Reading() { now.store(false); }
  } reading(table_.busy[static_cast<std::size_t>(rank_)].now);
  left_bytes_ = most_bytes;
  if (stops(0) || !go_on(operation)) return false;
  part_ = 0, at_ = 0;
  return true;
}

DSPP_INLINE bool ThreadShare::go_on(std::uint64_t operation) {
  switch (table_.slot(rank_, operation).collective) {
    case Collective::all_reduce: return all_reduce(operation);
    case Collective::reduce_scatter: return reduce_scatter(operation);
    case Collective::all_gather: return all_gather(operation);
    case Collective::all_to_all: return all_to_all(operation);
    case Collective::broadcast: return broadcast(operation);
    case Collective::send: return send(operation);
    case Collective::barrier: return true;
  }
  return true;
}

DSPP_INLINE bool ThreadShare::all_reduce(std::uint64_t operation) {
  if (size_ == 1) return true;
  const PostedPair& mine = pair(rank_, operation, 0);
  const Size begin = slice_begin(mine.count, rank_), end = slice_begin(mine.count, rank_ + 1);
  const Size element = bytes_of(mine.type), tile = tile_elements(mine.type);
  const auto memory = [&](int r) { return pair(r, operation, 0).out; };
  set_sources(rank_ + 1, 1, memory);
  set_places(memory);
  for (; begin + at_ < end; at_ += tile) {
    if (stops(tile_bytes)) return false;
    const Size at = begin + at_;
    sum(mine.type, at, std::min(tile, end - at), size_, at * element, 0);
  }
  received_bytes_ += (mine.count - (end - begin)) * element;
  return true;
}

DSPP_INLINE bool ThreadShare::reduce_scatter(std::uint64_t operation) {
  const Posted& mine = table_.slot(rank_, operation);
  for (; part_ < mine.pairs.size(); ++part_, at_ = 0) {
    const PostedPair& p = mine.pairs[part_];
    const Size element = bytes_of(p.type);
    const Size begin = p.count * rank_;
    if (size_ == 1) {
      copy(p.out, p.in, p.count * element);
      continue;
    }
    // Another ring than that of all_reduce.
    set_sources(rank_, -1, [&](int r) { return pair(r, operation, part_).in; });
    places_[0] = p.out;
    const Size tile = tile_elements(p.type);
    for (; at_ < p.count; at_ += tile) {
      if (stops(tile_bytes)) return false;
      const Size at = at_, count = std::min(tile, p.count - at);
      if (mine.digest) digest_over_ranks(p.type, sources_.data(), size_, begin + at, count, at * element, *mine.digest);
      sum(p.type, begin + at, count, 1, at * element, p.count * element);
    }
  }
  return true;
}

DSPP_INLINE bool ThreadShare::all_gather(std::uint64_t operation) {
  const Posted& mine = table_.slot(rank_, operation);
  for (; part_ < mine.pairs.size(); ++part_, at_ = 0) {
    const PostedPair& p = mine.pairs[part_];
    const Size bytes = p.count * bytes_of(p.type);
    set_places([&](int r) { return pair(r, operation, part_).out; });
    if (!write(p.in, bytes, rank_ * bytes, size_ * bytes)) return false;
    received_bytes_ += (size_ - 1) * bytes;
  }
  return true;
}

DSPP_INLINE bool ThreadShare::all_to_all(std::uint64_t operation) {
  const auto own = static_cast<std::size_t>(rank_);
  const Posted& mine = table_.slot(rank_, operation);
  const Size element = bytes_of(mine.pairs[own].type);
  for (; part_ < static_cast<std::size_t>(size_); ++part_, at_ = 0) {
    const int r = (rank_ + static_cast<int>(part_)) % size_;
    const PostedPair& p = mine.pairs[static_cast<std::size_t>(r)];
    if (part_ == 0)
      copy(p.out, p.in, p.count * element);
    else if (!read(p.out, pair(r, operation, own).in, p.received * element))
      return false;
  }
  return true;
}

DSPP_INLINE bool ThreadShare::broadcast(std::uint64_t operation) {
  const Posted& mine = table_.slot(rank_, operation);
  if (rank_ == mine.root) return true;
  const PostedPair& p = mine.pairs[0];
  return read(p.out, pair(mine.root, operation, 0).in, p.count * bytes_of(p.type));
}

DSPP_INLINE bool ThreadShare::send(std::uint64_t operation) {
  if (rank_ == sender) return true;
  const PostedPair& mine = pair(receiver, operation, 0);
  return read(mine.out, pair(sender, operation, 0).in, mine.count * bytes_of(mine.type));
}

DSPP_INLINE bool ThreadShare::read(void* to, const void* from, Size bytes) {
  for (; at_ < bytes; at_ += copy_bytes) {
    if (stops(copy_bytes)) return false;
    copy(advance(to, at_), advance(from, at_), std::min(copy_bytes, bytes - at_));
  }
  received_bytes_ += bytes;
  return true;
}

DSPP_INLINE bool ThreadShare::write(const void* from, Size bytes, Size offset, Size whole) {
  for (; at_ < bytes; at_ += tile_bytes) {
    if (stops(tile_bytes * size_)) return false;
    for (void* place : places_)
      copy(advance(place, offset + at_), advance(from, at_), std::min(tile_bytes, bytes - at_), whole);
  }
  return true;
}

DSPP_INLINE void ThreadShare::sum(ElementType type, Size at, Size count, int places, Size offset, Size whole) {
  const Size element = bytes_of(type);
  received_bytes_ += (size_ - 1) * count * element;
  if (places == 1 && whole < streamed_bytes)
    return sum_over_ranks(type, sources_.data(), size_, at, count, advance(places_[0], offset));
  alignas(64) std::byte sums[std::size_t{streamed_sums_bytes}];
  const Size together = (whole < streamed_bytes ? sums_bytes : streamed_sums_bytes) / element;
  for (Size i = 0; i < count; i += together) {
    const Size length = std::min(together, count - i);
    sum_over_ranks(type, sources_.data(), size_, at + i, length, sums);
    for (int r = 0; r < places; ++r)
      copy(advance(places_[static_cast<std::size_t>(r)], offset + i * element), sums, length * element, whole);
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
