// SPDX-License-Identifier: Apache-2.0
/// Ranks as threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dspp/comm/communicator.hpp>
#include <dspp/comm/posting.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <chrono>
#include <new>
#include <thread>

#include <dspp/base/cores.hpp>
#include <dspp/comm/check.hpp>
#include <dspp/comm/threads/rank.hpp>
#endif

namespace dspp {

namespace detail {
class LastResort;
class RankShare;
class ThreadFailureState;
class ThreadRank;
struct ThreadTable;
struct WaitPolicy;
}  // namespace detail

struct ThreadOptions {
  std::string name = "the world";       ///< of the group, in sentences
  double timeout_seconds = 600;         ///< after which a waiting rank gives up
  double heartbeat_seconds = 10;        ///< a process that must end but hangs is killed by the system that much later
  SumOrder sum_order = SumOrder::rank;  ///< transport: ring order, to test programs for such transports
};

class ThreadGroup;

/// One rank's handle on a thread group; copies share it. Used by one thread at a time.
/// Cost: an operation is posted at issue and done in wait(), or before by the rank's progress thread, if it has one,
/// directly between the ranks' buffers, without temporaries; one to two microseconds for a small one when the ranks
/// have a core each. At most 16 operations of a group are in flight; one more completes the oldest first.
/// Memory: no data. A slot keeps the capacity of its longest list of pairs; after that calls allocate nothing.
class Threads : public detail::Posting<detail::ThreadRank> {
 public:
  static constexpr bool of_threads = true;  ///< its ranks are threads of one process

  /// The same rank of the same group, for memory of a device that `make` moves. Every rank calls it, equally often.
  Threads on_device(std::function<std::unique_ptr<detail::RankShare>(detail::ThreadTable&, int)> make) const;

 private:
  friend class ThreadGroup;
  explicit Threads(std::shared_ptr<detail::ThreadRank> end) : Posting(std::move(end)) {}
};

/// Makes the communicators of a group of threads. The group lives as long as a handle or an operation needs it; copies
/// of a ThreadGroup are the same group.
///
///   ThreadGroup group(2);
///   std::thread a([&] { all_reduce(group.communicator(0), x, Purpose::gradient); }), b(...);
///
/// The owner of the threads calls abort() for a rank that failed with an exception and leave() for one that ended, as
/// run_ranks() does: the others then stop at once instead of after the timeout.
class ThreadGroup {
 public:
  /// Throws: Error(usage) for a size below 1, a timeout that is not above 0, or a sum order that is not offered.
  explicit ThreadGroup(int size, ThreadOptions options = {});

  /// A group of some of this group's ranks, in that order; a failure in one stops both.
  ThreadGroup subgroup(const std::string& name, std::vector<int> ranks) const;

  int size() const;

  /// The world rank of rank `rank` of this group.
  int world_rank(int rank) const;
  Threads communicator(int rank) const;

  /// Rank `rank` failed: every other rank, in this group and all that share its world, gets `reason` in an
  /// Error(aborted). True if this is the first failure of the world.
  bool abort(int rank, const std::string& reason);

  /// Rank `rank` ended normally: a rank that waits for it, now or later, gets an Error(peer_lost).
  void leave(int rank);

  /// Rank `rank` runs again: undoes leave().
  void join(int rank);

  /// From now on a thread advances the operations of rank `rank` in all groups of the world while the rank's own
  /// computes. Called by that, which calls stop_progress() before it ends.
  ///
  /// Throws   Error(out_of_memory) if the system has no thread
  void start_progress(int rank);
  void stop_progress(int rank);

  /// The world rank that the first failure is blamed on; -1 if there is none.
  int culprit() const;

  /// True if a failure has stopped the world; rethrow() then throws what its collectives throw.
  bool failed() const;
  [[noreturn]] void rethrow() const;

  /// After a timeout the last operations of each rank, a line each; else empty.
  std::string last_operations() const;

  double timeout_seconds() const { return timeout_seconds_; }
  double heartbeat_seconds() const { return heartbeat_seconds_; }

  /// For run_ranks(): `last` ends the process that long after a failure; null disarms it.
  void set_last_resort(detail::LastResort* last, double seconds);

 private:
  ThreadGroup(std::shared_ptr<detail::ThreadFailureState> failures, const ThreadOptions& options,
              std::vector<int> members);

  /// Ranks with a core each spin for about a microsecond, then yield the core some times before they sleep; ranks that
  /// share cores yield at once (measured: sleeping at once costs 4 times as much on a busy machine).
  detail::WaitPolicy wait_policy() const;
  static int check_size(int size);
  static std::vector<int> first_ranks(int size);

  double timeout_seconds_, heartbeat_seconds_;
  std::shared_ptr<detail::ThreadTable> table_;
  std::vector<std::shared_ptr<detail::ThreadRank>> ends_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if !DSPP_HAS_DEFINITIONS()
extern template class detail::Posting<detail::ThreadRank>;
#endif

#if DSPP_HAS_DEFINITIONS()

static_assert(Communicator<Threads>);

DSPP_INLINE ThreadGroup::ThreadGroup(int size, ThreadOptions options)
    : ThreadGroup(std::make_shared<detail::ThreadFailureState>(check_size(size)), options, first_ranks(size)) {}

DSPP_INLINE int ThreadGroup::size() const {
  return table_->size();
}
DSPP_INLINE int ThreadGroup::culprit() const {
  return table_->failures->culprit();
}
DSPP_INLINE bool ThreadGroup::failed() const {
  return table_->failures->failed();
}
DSPP_INLINE void ThreadGroup::rethrow() const {
  table_->failures->rethrow();
}
DSPP_INLINE std::string ThreadGroup::last_operations() const {
  return table_->failures->last_operations();
}
DSPP_INLINE void ThreadGroup::join(int rank) {
  table_->failures->wait_slot(world_rank(rank)).left.store(false);
}
DSPP_INLINE void ThreadGroup::start_progress(int rank) {
  detail::ThreadFailureState& failures = *table_->failures;
  const int own = world_rank(rank);
  failures.wait_slot(own).progress.start([&failures, own] { return detail::ThreadRank::advance_all(failures, own); });
}
DSPP_INLINE void ThreadGroup::stop_progress(int rank) {
  table_->failures->wait_slot(world_rank(rank)).progress.stop();
}
DSPP_INLINE void ThreadGroup::set_last_resort(detail::LastResort* last, double seconds) {
  table_->failures->set_last_resort(last, seconds);
}

DSPP_INLINE ThreadGroup ThreadGroup::subgroup(const std::string& name, std::vector<int> ranks) const {
  for (int& r : ranks) {
    detail::check_rank(r, size());
    r = table_->world_rank(r);
  }
  check_size(static_cast<int>(ranks.size()));
  return ThreadGroup(table_->failures, ThreadOptions{name, timeout_seconds_, heartbeat_seconds_, table_->sum_order},
                     std::move(ranks));
}

DSPP_INLINE int ThreadGroup::world_rank(int rank) const {
  detail::check_rank(rank, size());
  return table_->world_rank(rank);
}

DSPP_INLINE Threads
Threads::on_device(std::function<std::unique_ptr<detail::RankShare>(detail::ThreadTable&, int)> make) const {
  return Threads(end().on_device(std::move(make)));
}

DSPP_INLINE Threads ThreadGroup::communicator(int rank) const {
  detail::check_rank(rank, size());
  return Threads(ends_[static_cast<std::size_t>(rank)]);
}

DSPP_INLINE bool ThreadGroup::abort(int rank, const std::string& reason) {
  const int r = world_rank(rank);
  try {
    return table_->failures->fail(ErrorCode::aborted, detail::aborted_sentence(r, reason), r);
  } catch (const std::bad_alloc&) {  // a string that needs no allocation: the others must not wait
    return table_->failures->fail(ErrorCode::aborted, detail::no_memory_words, r);
  }
}

DSPP_INLINE void ThreadGroup::leave(int rank) {
  detail::ThreadFailureState& failures = *table_->failures;
  failures.wait_slot(world_rank(rank)).left.store(true);
  for (int r = 0; r < failures.ranks(); ++r) failures.wake(r);
}

DSPP_INLINE ThreadGroup::ThreadGroup(std::shared_ptr<detail::ThreadFailureState> failures, const ThreadOptions& options,
                                     std::vector<int> members)
    : timeout_seconds_(options.timeout_seconds),
      heartbeat_seconds_(options.heartbeat_seconds),
      table_(std::make_shared<detail::ThreadTable>(std::move(failures), options.name, std::move(members),
                                                   options.sum_order)) {
  detail::check_sum_order("a thread group", options.sum_order);
  if (!(timeout_seconds_ > 0)) {
    fail(ErrorCode::usage, "dspp: a thread group needs a timeout above 0 seconds, but got " +
                               std::to_string(timeout_seconds_) + ". Leave timeout_seconds out for 600.");
  }
  if (!(heartbeat_seconds_ > 0)) {
    fail(ErrorCode::usage, "dspp: a thread group needs a heartbeat above 0 seconds, but got " +
                               std::to_string(heartbeat_seconds_) + ". Leave heartbeat_seconds out for 10.");
  }
  const detail::WaitPolicy policy = wait_policy();
  for (int r = 0; r < size(); ++r) ends_.push_back(std::make_shared<detail::ThreadRank>(table_, r, policy));
}

DSPP_INLINE detail::WaitPolicy ThreadGroup::wait_policy() const {
  const bool shared = table_->failures->ranks() > cores_of_this_process().of_thread_rank(1);
  const double seconds = timeout_seconds_ < 1e8 ? timeout_seconds_ : 1e8;
  const auto timeout = std::chrono::duration_cast<detail::Clock::duration>(std::chrono::duration<double>(seconds));
  return {shared ? 0 : 20, shared ? 20 : 50, timeout};
}

DSPP_INLINE int ThreadGroup::check_size(int size) {
  if (size < 1)
    fail(ErrorCode::usage, "dspp: a thread group needs at least 1 rank, but got " + std::to_string(size) +
                               ". Give it the number of threads.");
  return size;
}

DSPP_INLINE std::vector<int> ThreadGroup::first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = r;
  return ranks;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
