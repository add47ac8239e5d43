// SPDX-License-Identifier: Apache-2.0
/// One rank's share of an operation of a group of MPI ranks: what it sends, receives and sums.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <dspp/comm/mpi/failure_state.hpp>
#include <dspp/comm/posted.hpp>
#include <dspp/comm/rank_sum.hpp>

namespace dspp::detail {

/// How the ranks of a group address one another: rank r of the group is rank ranks[r] of `comm`; its tags begin at
/// `tag`.
struct MpiLine {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> ranks;
  int tag = 0;
};

/// Sums exchange tiles between every two ranks and add in rank order with the code of the thread ranks; MPI's own
/// reductions are not used. Counts the bytes received from other ranks.
///
///   all_reduce      tile by tile: slices to their owners, sum, sums to all ranks
///   reduce_scatter  the first half of that
///   all_gather      the second half
///   all_to_all      every rank sends each other its part
///   broadcast       the root sends to each; so does the sender of a channel
///
/// At most `lane_count` tiles are under way. Every rank begins them in the same order, so that the messages between two
/// ranks match by order.
class MpiShare {
 public:
  /// `rank` of the `size` ranks that `line` connects.
  MpiShare(MpiFailureState& failures, const MpiLine& line, int rank)
      : failures_(failures), line_(line), rank_(rank), size_(static_cast<int>(line.ranks.size())) {}

  /// Advances `mine`, the oldest operation, on which all ranks agree. True when it is complete.
  bool run(const Posted& mine) {
    if (mine.collective == Collective::barrier) return true;
    while (under_way_ < lane_count && begin_next(mine)) {
    }
    for (std::size_t i = 0; i < under_way_; ++i) {
      Lane& lane = lanes_[(first_ + i) % lane_count];
      if (lane.stage != Stage::over && arrived(lane)) step(mine, lane);
      if (lane.stage == Stage::summing) break;  // sums are sent in the order of the tiles
      if (failures_.failed()) return false;
    }
    while (under_way_ > 0 && lanes_[first_].stage == Stage::over) {
      first_ = (first_ + 1) % lane_count;
      --under_way_;
    }
    return under_way_ == 0 && pair_ == mine.pairs.size();
  }

  /// Returns the bytes that run() received from other ranks for the operation, and resets the count.
  Size finish() {
    pair_ = 0;
    tile_ = 0;
    return std::exchange(read_bytes_, 0);
  }

  /// The ranks of the group from which a message is missing.
  std::vector<int> awaited() {
    std::vector<bool> missing(static_cast<std::size_t>(size_), false);
    for (std::size_t i = 0; i < under_way_; ++i) {
      Lane& lane = lanes_[(first_ + i) % lane_count];
      for (std::size_t k = 0; k < lane.requests.size(); ++k) {
        int done = 1;
        MPI_Test(&lane.requests[k], &done, MPI_STATUS_IGNORE);
        if (done == 0) missing[static_cast<std::size_t>(lane.peers[k])] = true;
      }
    }
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r) {
      if (missing[static_cast<std::size_t>(r)]) ranks.push_back(r);
    }
    return ranks;
  }

  /// After a failure: cancels receives, and waits at most that long for sends, so that nobody reads or writes this
  /// rank's memory afterwards.
  void withdraw(std::chrono::milliseconds longest) {
    for (Lane& lane : lanes_) {
      for (std::size_t k = 0; k < lane.receives; ++k) {
        if (lane.requests[k] != MPI_REQUEST_NULL) MPI_Cancel(&lane.requests[k]);
      }
    }
    const auto deadline = MpiFailureState::Clock::now() + longest;
    for (Lane& lane : lanes_) {
      int done = 0;
      while (MPI_Testall(static_cast<int>(lane.requests.size()), lane.requests.data(), &done, MPI_STATUSES_IGNORE) ==
                 MPI_SUCCESS &&
             done == 0 && MpiFailureState::Clock::now() < deadline)
        std::this_thread::yield();
      lane.requests.clear();
      lane.receives = 0;
    }
    under_way_ = 0;
  }

 private:
  enum class Stage { summing, gathering, over };

  /// A tile of a pair under way. The first `receives` requests are receives.
  struct Lane {
    Stage stage = Stage::over;
    std::size_t pair = 0;
    Size tile = 0;
    Size receiving_bytes = 0;
    std::size_t receives = 0;
    std::vector<MPI_Request> requests;
    std::vector<int> peers;
    std::vector<std::byte> summands;  // the other ranks' tiles of this rank's slice
  };

  struct Range {
    Size begin, count;
  };

  static constexpr int tag_summand = 1, tag_sum = 2;  // added to the first tag
  static constexpr std::size_t lane_count = 4;
  static constexpr Size summed_tile_bytes = 256 * 1024;
  static constexpr Size copied_tile_bytes = 4 * 1024 * 1024;

  int reach(int r) const { return line_.ranks[static_cast<std::size_t>(r)]; }

  static std::byte* at(void* data, Size bytes) { return static_cast<std::byte*>(data) + bytes; }
  static const std::byte* at(const void* data, Size bytes) { return static_cast<const std::byte*>(data) + bytes; }

  static bool sums(const Posted& p) {
    return p.collective == Collective::all_reduce || p.collective == Collective::reduce_scatter;
  }
  static bool one_source(const Posted& p) {
    return p.collective == Collective::broadcast || p.collective == Collective::send;
  }
  static Size tile_elements(const Posted& mine, const PostedPair& p) {
    return (sums(mine) ? summed_tile_bytes : copied_tile_bytes) / bytes_of(p.type);
  }

  /// Rank r's slice of a pair, in elements.
  Range slice(const Posted& mine, const PostedPair& p, int r) const {
    if (one_source(mine)) return {0, p.count};
    if (mine.collective != Collective::all_reduce) return {p.count * r, p.count};
    const Size begin = p.count * r / size_;
    return {begin, p.count * (r + 1) / size_ - begin};
  }

  /// Tile `tile` of rank r's slice.
  Range part(const Posted& mine, const PostedPair& p, int r, Size tile) const {
    const Range whole = slice(mine, p, r);
    const Size elements = tile_elements(mine, p), begin = std::min(whole.count, tile * elements);
    return {whole.begin + begin, std::min(whole.count - begin, elements)};
  }

  /// Begins the next tile; false when all have begun.
  bool begin_next(const Posted& mine) {
    if (mine.collective == Collective::all_to_all) return begin_parts(mine);
    for (; pair_ < mine.pairs.size(); ++pair_, tile_ = 0) {
      const PostedPair& p = mine.pairs[pair_];
      if (tile_ == 0) copy_own(mine, p);
      const Size longest = size_ == 1                                  ? 0
                           : mine.collective == Collective::all_reduce ? (p.count + size_ - 1) / size_
                                                                       : p.count;
      if (tile_ * tile_elements(mine, p) >= longest) continue;
      Lane& lane = lanes_[(first_ + under_way_) % lane_count];
      ++under_way_;
      lane.pair = pair_;
      lane.tile = tile_++;
      if (sums(mine))
        exchange_summands(mine, lane);
      else
        spread(mine, lane);
      return true;
    }
    return false;
  }

  /// The same for an all-to-all, whose pairs advance together: a tile of each.
  bool begin_parts(const Posted& mine) {
    if (pair_ == mine.pairs.size()) return false;
    const PostedPair& own = mine.pairs[static_cast<std::size_t>(rank_)];
    const Size element = bytes_of(own.type), elements = copied_tile_bytes / element;
    if (tile_ == 0 && own.count > 0) std::memcpy(own.out, own.in, static_cast<std::size_t>(own.count * element));
    Size longest = 0;
    for (int r = 0; r < size_; ++r) {
      const PostedPair& p = mine.pairs[static_cast<std::size_t>(r)];
      if (r != rank_) longest = std::max({longest, p.count, p.received});
    }
    const Size begin = tile_++ * elements;
    if (begin >= longest) {
      pair_ = mine.pairs.size();
      return false;
    }
    Lane& lane = lanes_[(first_ + under_way_) % lane_count];
    ++under_way_;
    clear(lane, Stage::gathering);
    const auto bytes = [&](Size count) { return std::clamp<Size>(count - begin, 0, elements) * element; };
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ + step) % size_, to = (rank_ + size_ - step) % size_;
      const PostedPair &source = mine.pairs[static_cast<std::size_t>(from)],
                       &target = mine.pairs[static_cast<std::size_t>(to)];
      receive(lane, at(source.out, begin * element), bytes(source.received), from, tag_sum);
      send(lane, at(target.in, begin * element), bytes(target.count), to, tag_sum);
    }
    return true;
  }

  /// Copies this rank's own part of a pair's result.
  void copy_own(const Posted& mine, const PostedPair& p) const {
    const Size bytes = p.count * bytes_of(p.type);
    const bool alone = mine.collective == Collective::reduce_scatter && size_ == 1;
    if (mine.collective != Collective::all_gather && !alone) return;
    std::byte* to = at(p.out, rank_ * bytes);
    if (to != p.in && bytes > 0) std::memcpy(to, p.in, static_cast<std::size_t>(bytes));
  }

  void clear(Lane& lane, Stage stage) {
    lane.stage = stage;
    lane.receiving_bytes = 0;
    lane.receives = 0;
    lane.requests.clear();
    lane.peers.clear();
  }

  void receive(Lane& lane, void* to, Size bytes, int from, int tag) {
    if (bytes == 0) return;
    lane.requests.push_back(MPI_REQUEST_NULL);
    lane.peers.push_back(from);
    ++lane.receives;
    lane.receiving_bytes += bytes;
    failures_.good(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, reach(from), line_.tag + tag, line_.comm,
                             &lane.requests.back()),
                   "receive");
  }

  void send(Lane& lane, const void* data, Size bytes, int to, int tag) {
    if (bytes == 0) return;
    lane.requests.push_back(MPI_REQUEST_NULL);
    lane.peers.push_back(to);
    failures_.good(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, reach(to), line_.tag + tag, line_.comm,
                             &lane.requests.back()),
                   "send");
  }

  void exchange_summands(const Posted& mine, Lane& lane) {
    clear(lane, Stage::summing);
    const PostedPair& p = mine.pairs[lane.pair];
    const Size element = bytes_of(p.type);
    const Size own_bytes = part(mine, p, rank_, lane.tile).count * element;
    if (lane.summands.size() < static_cast<std::size_t>(own_bytes * (size_ - 1)))
      lane.summands.resize(static_cast<std::size_t>(own_bytes * (size_ - 1)));
    for (int step = 1; step < size_; ++step)
      receive(lane, lane.summands.data() + (step - 1) * own_bytes, own_bytes, (rank_ + step) % size_, tag_summand);
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + size_ - step) % size_;
      const Range theirs = part(mine, p, to, lane.tile);
      send(lane, at(p.in, theirs.begin * element), theirs.count * element, to, tag_summand);
    }
  }

  /// Sends this rank's tile to the others and receives theirs in place.
  void spread(const Posted& mine, Lane& lane) {
    clear(lane, Stage::gathering);
    const PostedPair& p = mine.pairs[lane.pair];
    const Size element = bytes_of(p.type);
    const int source = mine.collective == Collective::send ? sender : mine.root;
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ + step) % size_;
      if (one_source(mine) && from != source) continue;
      const Range theirs = part(mine, p, from, lane.tile);
      receive(lane, at(p.out, theirs.begin * element), theirs.count * element, from, tag_sum);
    }
    if (one_source(mine) && rank_ != source) return;
    const Range own = part(mine, p, rank_, lane.tile);
    const Size begin = mine.collective == Collective::all_gather ? own.begin - p.count * rank_ : own.begin;
    const void* data = mine.collective == Collective::all_reduce ? p.out : p.in;
    for (int step = 1; step < size_; ++step)
      send(lane, at(data, begin * element), own.count * element, (rank_ + size_ - step) % size_, tag_sum);
  }

  bool arrived(Lane& lane) {
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(lane.requests.size()), lane.requests.data(), &done, MPI_STATUSES_IGNORE);
    return failures_.good(code, "continue a collective") && done != 0;
  }

  void step(const Posted& mine, Lane& lane) {
    ++failures_.steps;
    read_bytes_ += lane.receiving_bytes;
    if (lane.stage == Stage::gathering) return clear(lane, Stage::over);
    sum(mine, lane);
    if (mine.collective == Collective::all_reduce)
      spread(mine, lane);
    else
      clear(lane, Stage::over);
  }

  void sum(const Posted& mine, Lane& lane) {
    const PostedPair& p = mine.pairs[lane.pair];
    const Size element = bytes_of(p.type);
    const Range own = part(mine, p, rank_, lane.tile);
    if (own.count == 0) return;
    sources_.resize(static_cast<std::size_t>(size_));
    sources_[static_cast<std::size_t>(rank_)] = at(p.in, own.begin * element);
    for (int step = 1; step < size_; ++step) {
      sources_[static_cast<std::size_t>((rank_ + step) % size_)] =
          lane.summands.data() + (step - 1) * own.count * element;
    }
    const Size begin = mine.collective == Collective::all_reduce ? own.begin : own.begin - p.count * rank_;
    if (mine.digest && mine.collective == Collective::reduce_scatter)
      digest_over_ranks(p.type, sources_.data(), size_, 0, own.count, begin * element, *mine.digest);
    sum_over_ranks(p.type, sources_.data(), size_, 0, own.count, at(p.out, begin * element));
  }

  MpiFailureState& failures_;
  const MpiLine& line_;
  int rank_;
  int size_;
  std::size_t pair_ = 0;  // the next tile to begin
  Size tile_ = 0;
  Size read_bytes_ = 0;
  std::array<Lane, lane_count> lanes_;
  std::size_t first_ = 0;  // the oldest of the tiles under way
  std::size_t under_way_ = 0;
  std::vector<const void*> sources_;
};

}  // namespace dspp::detail

#endif  // DSPP_HAS_MPI()
