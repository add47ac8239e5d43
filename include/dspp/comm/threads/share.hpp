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

#if DSPP_HAS_SSE2()
#include <emmintrin.h>
#endif

namespace dspp::detail {

/// Sums and copies directly between the ranks' buffers, without temporaries; counts the bytes read from other ranks.
///
/// Under SumOrder::transport each slice is added in ring order: in an all-reduce from the rank after its owner onwards,
/// in a reduce-scatter from the owner backwards.
///
/// All-reduce works in tiles: a rank sums a tile of its slice in place, publishes it, and gathers the published tiles
/// of the others while both are in the shared cache.
class ThreadShare final : public RankShare {
 public:
  ThreadShare(ThreadTable& table, int rank)
      : table_(table),
        rank_(rank),
        size_(table.size()),
        sources_(static_cast<std::size_t>(size_)),
        gathered_(static_cast<std::size_t>(size_)) {}

  bool run(std::uint64_t operation) override;
  Size finish() override;

 private:
  static constexpr Size tile_bytes = 128 * 1024;
  static constexpr Size copy_bytes = 4 * 1024 * 1024;       // a failure is noticed within the time of one copy
  static constexpr Size streamed_bytes = 64 * 1024 * 1024;  // more than a core's share of any cache

  bool stopped() const { return table_.failures->failed(); }
  const PostedPair& pair(int rank, std::uint64_t operation, std::size_t i) const {
    return table_.slot(rank, operation).pairs[i];
  }
  Size slice_begin(Size count, int rank) const { return slice_of_sum(count, rank, size_); }
  static Size tile_elements(ElementType type) { return tile_bytes / bytes_of(type); }
  static std::byte* advance(void* data, Size bytes) { return static_cast<std::byte*>(data) + bytes; }
  static const std::byte* advance(const void* data, Size bytes) { return static_cast<const std::byte*>(data) + bytes; }

  bool all_reduce(std::uint64_t operation);

  /// Copies the published part of the other ranks' slices; true when all of it is copied.
  bool gather_sums(std::uint64_t operation, const PostedPair& mine);
  bool reduce_scatter(std::uint64_t operation);
  bool all_gather(std::uint64_t operation);
  bool all_to_all(std::uint64_t operation);
  bool broadcast(std::uint64_t operation);
  bool send(std::uint64_t operation);

  /// Besides sum(), the only place that accesses other ranks' memory. `whole` are the bytes that the operation writes.
  bool read(void* to, const void* from, Size bytes, Size whole = 0);
  void sum(ElementType type, Size at, Size count, void* out);

  /// What sum() adds: `memory(r)` of every rank r, in rank order, or in ring order from rank `first` onwards.
  template <class MemoryOf>
  void set_sources(int first, int step, MemoryOf memory) {
    const bool ring = table_.sum_order == SumOrder::transport;
    for (int i = 0; i < size_; ++i)
      sources_[static_cast<std::size_t>(i)] = memory(ring ? (first + step * i + size_ * size_) % size_ : i);
  }
  /// The same bytes. Of at least streamed_bytes in `whole`, by stores that leave out the caches, which would read the
  /// memory that is overwritten: a third less traffic.
  static void copy(void* to, const void* from, Size bytes, Size whole = 0);

  ThreadTable& table_;
  int rank_;
  int size_;
  Size summed_tiles_ = 0;
  Size read_bytes_ = 0;
  std::vector<const void*> sources_;
  std::vector<Size> gathered_;  // elements of each rank's slice
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool ThreadShare::run(std::uint64_t operation) {
  struct Reading {
    std::atomic<bool>& now;
    explicit Reading(std::atomic<bool>& flag) : now(flag) { now.store(true); }
    ~Reading() { now.store(false); }
  } reading(table_.busy[static_cast<std::size_t>(rank_)].now);
  if (stopped()) return false;
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

DSPP_INLINE Size ThreadShare::finish() {
  summed_tiles_ = 0;
  std::fill(gathered_.begin(), gathered_.end(), 0);
  return std::exchange(read_bytes_, 0);
}

DSPP_INLINE bool ThreadShare::all_reduce(std::uint64_t operation) {
  if (size_ == 1) return true;
  const PostedPair& mine = pair(rank_, operation, 0);
  const Size begin = slice_begin(mine.count, rank_);
  const Size end = slice_begin(mine.count, rank_ + 1);
  const Size tile = tile_elements(mine.type);
  const Size tiles = (end - begin + tile - 1) / tile;
  set_sources(rank_ + 1, 1, [&](int r) { return pair(r, operation, 0).out; });
  while (summed_tiles_ < tiles) {
    if (stopped()) return false;
    const Size at = begin + summed_tiles_ * tile;
    sum(mine.type, at, std::min(tile, end - at), advance(mine.out, at * bytes_of(mine.type)));
    ++summed_tiles_;
    auto& shown = table_.progress(rank_).reduced;
    shown.store(tile_mark(operation, summed_tiles_));
    if (summed_tiles_ == tiles) table_.wake_others(rank_);
    gather_sums(operation, mine);
  }
  return gather_sums(operation, mine);
}

DSPP_INLINE bool ThreadShare::gather_sums(std::uint64_t operation, const PostedPair& mine) {
  bool whole = true;
  const Size element = bytes_of(mine.type);
  for (int step = 1; step < size_; ++step) {
    const int r = (rank_ + step) % size_;
    Size& gathered = gathered_[static_cast<std::size_t>(r)];
    const Size begin = slice_begin(mine.count, r);
    const Size count = slice_begin(mine.count, r + 1) - begin;
    if (gathered == count) continue;
    const std::uint64_t shown = table_.progress(r).reduced.load();
    const std::uint64_t none = tile_mark(operation, 0);
    const Size tiles = static_cast<Size>(std::clamp(shown, none, tile_mark(operation + 1, 0)) - none);
    const Size ready = std::min(count, tiles * tile_elements(mine.type));
    if (ready > gathered) {
      const Size at = (begin + gathered) * element;
      if (!read(advance(mine.out, at), advance(pair(r, operation, 0).out, at), (ready - gathered) * element))
        return false;
      gathered = ready;
    }
    whole = whole && gathered == count;
  }
  return whole;
}

DSPP_INLINE bool ThreadShare::reduce_scatter(std::uint64_t operation) {
  const Posted& mine = table_.slot(rank_, operation);
  for (std::size_t i = 0; i < mine.pairs.size(); ++i) {
    const PostedPair& p = mine.pairs[i];
    const Size element = bytes_of(p.type);
    const Size begin = p.count * rank_;
    if (size_ == 1) {
      copy(p.out, p.in, p.count * element);
      continue;
    }
    set_sources(rank_, -1, [&](int r) { return pair(r, operation, i).in; });  // another ring than that of all_reduce
    const Size tile = tile_elements(p.type);
    for (Size at = 0; at < p.count; at += tile) {
      if (stopped()) return false;
      const Size count = std::min(tile, p.count - at);
      if (mine.digest) digest_over_ranks(p.type, sources_.data(), size_, begin + at, count, at * element, *mine.digest);
      sum(p.type, begin + at, count, advance(p.out, at * element));
    }
  }
  return true;
}

DSPP_INLINE bool ThreadShare::all_gather(std::uint64_t operation) {
  const Posted& mine = table_.slot(rank_, operation);
  for (std::size_t i = 0; i < mine.pairs.size(); ++i) {
    const PostedPair& p = mine.pairs[i];
    const Size bytes = p.count * bytes_of(p.type), whole = size_ * bytes;
    copy(advance(p.out, rank_ * bytes), p.in, bytes, whole);
    for (int step = 1; step < size_; ++step) {
      const int r = (rank_ + step) % size_;
      if (!read(advance(p.out, r * bytes), pair(r, operation, i).in, bytes, whole)) return false;
    }
  }
  return true;
}

DSPP_INLINE bool ThreadShare::all_to_all(std::uint64_t operation) {
  const auto own = static_cast<std::size_t>(rank_);
  const Posted& mine = table_.slot(rank_, operation);
  const Size element = bytes_of(mine.pairs[own].type);
  copy(mine.pairs[own].out, mine.pairs[own].in, mine.pairs[own].count * element);
  for (int step = 1; step < size_; ++step) {
    const int r = (rank_ + step) % size_;
    const PostedPair& p = mine.pairs[static_cast<std::size_t>(r)];
    if (!read(p.out, pair(r, operation, own).in, p.received * element)) return false;
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

DSPP_INLINE bool ThreadShare::read(void* to, const void* from, Size bytes, Size whole) {
  for (Size at = 0; at < bytes; at += copy_bytes) {
    if (stopped()) return false;
    copy(advance(to, at), advance(from, at), std::min(copy_bytes, bytes - at), whole);
  }
  read_bytes_ += bytes;
  return true;
}

DSPP_INLINE void ThreadShare::sum(ElementType type, Size at, Size count, void* out) {
  sum_over_ranks(type, sources_.data(), size_, at, count, out);
  read_bytes_ += (size_ - 1) * count * bytes_of(type);
}

DSPP_INLINE void ThreadShare::copy(void* to, const void* from, Size bytes, [[maybe_unused]] Size whole) {
  if (to == from || bytes == 0) return;
#if DSPP_HAS_SSE2()
  constexpr Size line = 64, vector = 16;
  if (whole >= streamed_bytes && reinterpret_cast<std::uintptr_t>(to) % vector == 0) {
    auto* out = static_cast<__m128i*>(to);
    const auto* in = static_cast<const __m128i*>(from);
    const Size lines = bytes / line;
    for (Size i = 0; i < lines; ++i, in += line / vector, out += line / vector)
      for (Size j = 0; j < line / vector; ++j) _mm_stream_si128(out + j, _mm_loadu_si128(in + j));
    _mm_sfence();
    to = out, from = in, bytes -= lines * line;
  }
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
