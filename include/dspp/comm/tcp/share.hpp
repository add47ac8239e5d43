// SPDX-License-Identifier: Apache-2.0
/// One rank's share of an operation of a group of TCP ranks: what it sends, receives and sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <dspp/comm/posted.hpp>
#include <dspp/comm/tcp/failure_state.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <dspp/comm/rank_sum.hpp>
#endif

namespace dspp::detail {

/// An operation goes in rounds, each of a tile. In a round a rank tells those from which it awaits data that it is
/// ready, sends those that are ready for its own, and goes on when all of it has moved: data come into the memory where
/// they belong, and a rank that is late holds no more than what the system's sockets take. Sums add in rank order with
/// the code of the thread ranks.
///
///   all_reduce      slices to their owners, sum, sums to all ranks
///   reduce_scatter  the first half of that
///   all_gather      the second half
///   all_to_all      every rank sends each other its part
///   broadcast       the root sends to each; so does the sender of a channel
class TcpShare {
 public:
  /// `members` are the world ranks of the group; `rank` is this rank's number in it.
  TcpShare(TcpFailureState& failures, int line, std::vector<int> members, int rank)
      : failures_(failures), line_(line), members_(std::move(members)), rank_(rank), peers_(members_.size()) {}

  /// Advances `mine`, the oldest operation, on which all ranks agree. True when it is complete.
  bool run(const Posted& mine);
  /// Returns the bytes that run() received from other ranks for the operation, and resets the count.
  Size finish();
  /// The ranks of the group that have not sent or taken data.
  std::vector<int> awaited() const;
  /// After a failure: nobody reads or writes this rank's memory afterwards.
  void withdraw();

  /// See TcpLine.
  std::byte* room(int world_rank, Size bytes);
  void arrived(int world_rank);

 private:
  enum class Stage { begin, summing, gathering };

  struct Peer {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    Size receiving_bytes = 0, sending_bytes = 0;  // that have not come, and that were not sent
    int unsent = 0;                               // messages that the links have
  };
  struct Range {
    Size begin, count;
  };

  static constexpr Size summed_tile_bytes = 256 * 1024, copied_tile_bytes = 4 * 1024 * 1024;

  int size() const { return static_cast<int>(members_.size()); }
  Peer& peer(int r) { return peers_[static_cast<std::size_t>(r)]; }
  int number_of(int world_rank) const {
    const auto found = std::find(members_.begin(), members_.end(), world_rank);
    return found == members_.end() ? -1 : static_cast<int>(found - members_.begin());
  }

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

  Range slice(const Posted& mine, const PostedPair& p, int r) const;
  Range part(const Posted& mine, const PostedPair& p, int r) const;
  bool begin_round(const Posted& mine);
  bool begin_parts(const Posted& mine);
  void copy_own(const Posted& mine, const PostedPair& p) const;
  void exchange_summands(const Posted& mine, const PostedPair& p);
  void spread(const Posted& mine, const PostedPair& p);
  void receive(int r, std::byte* to, Size bytes);
  void send(int r, const std::byte* from, Size bytes);
  bool is_round_over();
  void end_round(const Posted& mine);
  void sum(const Posted& mine, const PostedPair& p);

  TcpFailureState& failures_;
  int line_;
  std::vector<int> members_;
  int rank_;
  std::vector<Peer> peers_;
  Stage stage_ = Stage::begin;
  std::size_t pair_ = 0;
  Size tile_ = 0;  // of the pair, whose round is next or under way
  Size read_bytes_ = 0;
  std::vector<std::byte> summands_;  // the other ranks' tiles of this rank's slice
  std::vector<const void*> sources_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool TcpShare::run(const Posted& mine) {
  if (mine.collective == Collective::barrier) return true;
  for (;;) {
    if (stage_ == Stage::begin && !begin_round(mine)) return true;
    if (!is_round_over() || failures_.failed()) return false;
    ++failures_.steps;
    end_round(mine);
  }
}

DSPP_INLINE Size TcpShare::finish() {
  pair_ = 0;
  tile_ = 0;
  return std::exchange(read_bytes_, 0);
}

DSPP_INLINE std::vector<int> TcpShare::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    const Peer& p = peers_[static_cast<std::size_t>(r)];
    if (p.receiving_bytes > 0 || p.sending_bytes > 0 || p.unsent > 0) ranks.push_back(r);
  }
  return ranks;
}

DSPP_INLINE void TcpShare::withdraw() {
  failures_.links().withdraw(line_);
  for (Peer& p : peers_) p = {};
  stage_ = Stage::begin;
}

DSPP_INLINE std::byte* TcpShare::room(int world_rank, Size bytes) {
  const int r = number_of(world_rank);
  return r < 0 || bytes == 0 || peer(r).receiving_bytes != bytes ? nullptr : peer(r).to;
}

DSPP_INLINE void TcpShare::arrived(int world_rank) {
  Peer& p = peer(number_of(world_rank));
  read_bytes_ += std::exchange(p.receiving_bytes, 0);
  ++failures_.steps;
}

/// Rank r's slice of a pair, in elements.
DSPP_INLINE TcpShare::Range TcpShare::slice(const Posted& mine, const PostedPair& p, int r) const {
  if (one_source(mine)) return {0, p.count};
  if (mine.collective != Collective::all_reduce) return {p.count * r, p.count};
  const Size begin = p.count * r / size();
  return {begin, p.count * (r + 1) / size() - begin};
}

/// The tile under way of rank r's slice.
DSPP_INLINE TcpShare::Range TcpShare::part(const Posted& mine, const PostedPair& p, int r) const {
  const Range whole = slice(mine, p, r);
  const Size elements = tile_elements(mine, p), begin = std::min(whole.count, tile_ * elements);
  return {whole.begin + begin, std::min(whole.count - begin, elements)};
}

/// Begins the next round; false when all are over.
DSPP_INLINE bool TcpShare::begin_round(const Posted& mine) {
  if (mine.collective == Collective::all_to_all) return begin_parts(mine);
  for (; pair_ < mine.pairs.size(); ++pair_, tile_ = 0) {
    const PostedPair& p = mine.pairs[pair_];
    if (tile_ == 0) copy_own(mine, p);
    const Size longest = size() == 1                                 ? 0
                         : mine.collective == Collective::all_reduce ? (p.count + size() - 1) / size()
                                                                     : p.count;
    if (tile_ * tile_elements(mine, p) >= longest) continue;
    if (sums(mine))
      exchange_summands(mine, p);
    else
      spread(mine, p);
    return true;
  }
  return false;
}

/// The same for an all-to-all, whose pairs advance together: a tile of each.
DSPP_INLINE bool TcpShare::begin_parts(const Posted& mine) {
  const PostedPair& own = mine.pairs[static_cast<std::size_t>(rank_)];
  const Size element = bytes_of(own.type), elements = copied_tile_bytes / element, begin = tile_ * elements;
  if (tile_ == 0 && own.count > 0) std::memcpy(own.out, own.in, static_cast<std::size_t>(own.count * element));
  Size longest = 0;
  for (int r = 0; r < size(); ++r) {
    const PostedPair& p = mine.pairs[static_cast<std::size_t>(r)];
    if (r != rank_) longest = std::max({longest, p.count, p.received});
  }
  if (begin >= longest) return false;
  stage_ = Stage::gathering;
  const auto bytes = [&](Size count) { return std::clamp<Size>(count - begin, 0, elements) * element; };
  for (int r = 0; r < size(); ++r) {
    const PostedPair& p = mine.pairs[static_cast<std::size_t>(r)];
    if (r == rank_) continue;
    receive(r, at(p.out, begin * element), bytes(p.received));
    send(r, at(p.in, begin * element), bytes(p.count));
  }
  return true;
}

/// Copies this rank's own part of a pair's result.
DSPP_INLINE void TcpShare::copy_own(const Posted& mine, const PostedPair& p) const {
  const Size bytes = p.count * bytes_of(p.type);
  const bool alone = mine.collective == Collective::reduce_scatter && size() == 1;
  if (mine.collective != Collective::all_gather && !alone) return;
  std::byte* const to = at(p.out, rank_ * bytes);
  if (to != p.in && bytes > 0) std::memcpy(to, p.in, static_cast<std::size_t>(bytes));
}

DSPP_INLINE void TcpShare::receive(int r, std::byte* to, Size bytes) {
  if (bytes == 0) return;
  peer(r).to = to;
  peer(r).receiving_bytes = bytes;
  failures_.links().send(members_[static_cast<std::size_t>(r)], TcpKind::ready, line_);
}

DSPP_INLINE void TcpShare::send(int r, const std::byte* from, Size bytes) {
  peer(r).from = from;
  peer(r).sending_bytes = bytes;
}

DSPP_INLINE void TcpShare::exchange_summands(const Posted& mine, const PostedPair& p) {
  stage_ = Stage::summing;
  const Size element = bytes_of(p.type), own_bytes = part(mine, p, rank_).count * element;
  if (std::ssize(summands_) < own_bytes * size()) summands_.resize(static_cast<std::size_t>(own_bytes * size()));
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    receive(r, summands_.data() + r * own_bytes, own_bytes);
    const Range theirs = part(mine, p, r);
    send(r, at(p.in, theirs.begin * element), theirs.count * element);
  }
}

/// Sends this rank's tile to the others and receives theirs in place.
DSPP_INLINE void TcpShare::spread(const Posted& mine, const PostedPair& p) {
  stage_ = Stage::gathering;
  const Size element = bytes_of(p.type);
  const int source = mine.collective == Collective::send ? sender : mine.root;
  const Range own = part(mine, p, rank_);
  const Size begin = mine.collective == Collective::all_gather ? own.begin - p.count * rank_ : own.begin;
  const void* const data = mine.collective == Collective::all_reduce ? p.out : p.in;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    if (!one_source(mine) || r == source) {
      const Range theirs = part(mine, p, r);
      receive(r, at(p.out, theirs.begin * element), theirs.count * element);
    }
    if (!one_source(mine) || rank_ == source) send(r, at(data, begin * element), own.count * element);
  }
}

/// Sends what ranks are ready for. True if all of the round has moved.
DSPP_INLINE bool TcpShare::is_round_over() {
  bool over = true;
  for (int r = 0; r < size(); ++r) {
    Peer& p = peer(r);
    const int world_rank = members_[static_cast<std::size_t>(r)];
    if (p.sending_bytes > 0 && failures_.take_ready(line_, world_rank)) {
      failures_.links().send_data(world_rank, line_, p.from, p.sending_bytes, p.unsent);
      p.sending_bytes = 0;
    }
    over = over && p.receiving_bytes == 0 && p.sending_bytes == 0 && p.unsent == 0;
  }
  return over;
}

DSPP_INLINE void TcpShare::end_round(const Posted& mine) {
  const bool summed = stage_ == Stage::summing;
  stage_ = Stage::begin;
  if (mine.collective == Collective::all_to_all) return static_cast<void>(++tile_);
  const PostedPair& p = mine.pairs[pair_];
  if (summed) sum(mine, p);
  if (summed && mine.collective == Collective::all_reduce)
    spread(mine, p);
  else
    ++tile_;
}

DSPP_INLINE void TcpShare::sum(const Posted& mine, const PostedPair& p) {
  const Size element = bytes_of(p.type);
  const Range own = part(mine, p, rank_);
  if (own.count == 0) return;
  sources_.clear();
  for (int r = 0; r < size(); ++r) sources_.push_back(summands_.data() + r * own.count * element);
  sources_[static_cast<std::size_t>(rank_)] = at(p.in, own.begin * element);
  const Size begin = mine.collective == Collective::all_reduce ? own.begin : own.begin - p.count * rank_;
  if (mine.digest && mine.collective == Collective::reduce_scatter)
    digest_over_ranks(p.type, sources_.data(), size(), 0, own.count, begin * element, *mine.digest);
  sum_over_ranks(p.type, sources_.data(), size(), 0, own.count, at(p.out, begin * element));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
