// SPDX-License-Identifier: Apache-2.0
/// What a rank does of an operation of a thread group, whatever memory it is in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <dspp/comm/threads/table.hpp>

namespace dspp::detail {

/// Moves and sums one rank's share of each operation. Used by the rank's thread.
class RankShare {
 public:
  virtual ~RankShare() = default;

  /// This rank is about to post `operation`: what it issued before has written its memory. Throws: Error.
  virtual void issue(std::uint64_t operation) { static_cast<void>(operation); }

  /// Advances `operation`, which all ranks have posted, as far as possible, in host memory until it has written about
  /// `most_bytes`. True when it is complete, or issued to the device; false also once the group has failed. It fails
  /// the group rather than throw.
  virtual bool run(std::uint64_t operation, Size most_bytes) = 0;

  /// All ranks that access this rank's memory for `operation` have run it: what this rank issues from now on comes
  /// after. False once the group has failed.
  virtual bool complete(std::uint64_t operation) {
    static_cast<void>(operation);
    return true;
  }

  /// Returns the bytes that came from other ranks for the operation, and resets the count.
  virtual Size finish() = 0;

  /// After a failure, when no rank begins anything any more: returns when nothing that was begun is under way.
  virtual void stop() noexcept {}

  /// Whether operations are worth beginning at issue, since they then run beside what follows.
  virtual bool is_asynchronous() const { return false; }
};

using MakeShare = std::function<std::unique_ptr<RankShare>(ThreadTable&, int rank)>;

/// Where the slice that `rank` sums in an all-reduce of `count` elements begins.
constexpr Size slice_of_sum(Size count, int rank, int ranks) {
  return count * rank / ranks;
}

/// True if no other rank accesses the memory of the rank that posted `mine`.
inline bool is_unread(const Posted& mine, int rank) {
  return mine.collective == Collective::barrier || (mine.collective == Collective::broadcast && rank != mine.root) ||
         (mine.collective == Collective::send && rank == receiver);
}

}  // namespace dspp::detail
