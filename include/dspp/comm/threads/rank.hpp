// SPDX-License-Identifier: Apache-2.0
/// One rank's end of a thread group: posts operations, advances them in order, waits, and detects failures.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include <dspp/comm/pending.hpp>
#include <dspp/comm/threads/share.hpp>

namespace dspp::detail {

void relax();

/// How a rank waits: it spins, then yields its core, then sleeps; starts over after any progress.
struct WaitPolicy {
  int spins = 0;
  int yields = 0;
  Clock::duration timeout{};
};

/// Operations run in the order of issue, each through three stages, whenever the rank waits or polls, and of a device
/// also when it issues:
///
///   called   every rank must have posted the same, and have moved what it writes in the operations before
///   moved    this rank does its share (RankShare)
///   drained  no other rank still accesses this rank's memory
///
/// While a rank waits in one group it also advances its operations in the other groups of the world, so the order of
/// waits across groups cannot deadlock. Used by one thread at a time, which takes turns with the rank's ProgressThread,
/// if it has one.
class ThreadRank : public std::enable_shared_from_this<ThreadRank> {
 public:
  /// Counts in `traffic`, which an end shares with its channels.
  ThreadRank(std::shared_ptr<ThreadTable> table, int rank, WaitPolicy wait_policy, MakeShare make_share = share_of_host,
             std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>())
      : table_(std::move(table)),
        rank_(rank),
        wait_policy_(wait_policy),
        make_share_(std::move(make_share)),
        share_(make_share_(*table_, rank)),
        traffic_(std::move(traffic)) {}

  int rank() const { return rank_; }
  int size() const { return table_->size(); }
  SumOrder sum_order() const { return table_->sum_order; }
  const Traffic& traffic() const { return progress_thread().read(*traffic_, seen_traffic_); }
  bool async_progress(Size bytes) const { return progress_thread().wakes_for(bytes); }
  double timeout_seconds() const { return std::chrono::duration<double>(wait_policy_.timeout).count(); }

  /// This rank's end of the channel on which rank `from` sends to rank `to`; it is one of the two.
  ThreadRank& channel(int from, int to);

  /// A new end of the same rank for memory of a device, counted in the same traffic. Every rank calls it, equally
  /// often.
  std::shared_ptr<ThreadRank> on_device(MakeShare make_share);

  /// The slot of the next operation, without pairs. Completes the oldest operation if every slot is taken.
  Posted& open(Collective collective, PurposeAt purpose, int root = 0);

  /// Publishes the slot to the other ranks.
  Pending<> publish();

  /// Advances what can be advanced. Throws the failure of the world, if there is one.
  void poll();
  /// The same, of ranks that have yet to call what this one waits for.
  void expire();
  void abort(const Error& error);

  /// For a ProgressThread: advances what can be advanced of that rank of the world.
  static ProgressThread::Found advance_all(ThreadFailureState& failures, int world_rank);

 private:
  enum class Stage { called, moved, drained };
  static constexpr Size all_bytes = std::numeric_limits<Size>::max();

  static std::unique_ptr<RankShare> share_of_host(ThreadTable& table, int rank) {
    return std::make_unique<ThreadShare>(table, rank);
  }

  ThreadFailureState& failures() const { return *table_->failures; }
  int world_rank() const { return table_->world_rank(rank_); }
  std::vector<ThreadRank*>& active() const { return failures().wait_slot(world_rank()).active; }
  FlightRecorder& flights() const { return failures().wait_slot(world_rank()).flights; }
  ProgressThread& progress_thread() const { return failures().wait_slot(world_rank()).progress; }
  [[nodiscard]] auto turn() const { return progress_thread().turn(); }

  // --- progress: no waiting, no throwing

  bool progress();

  /// Advances the oldest operation; true if that completed it. `most_bytes`: see RankShare::run().
  bool advance(Size most_bytes = all_bytes);
  bool all_called();

  // --- waiting: all of it is in await()

  template <class Ready>
  void await(Ready ready) {
    WaitPolicy left = wait_policy_;
    while (!ready()) {
      if (failures().failed()) stop();
      if (progress()) {
        left = wait_policy_;
      } else if (left.spins > 0) {
        --left.spins;
        relax();
      } else if (left.yields > 0) {
        --left.yields;
        std::this_thread::yield();
      } else {
        sleep(ready);
      }
    }
  }

  /// Sleeps until something is published or fails. The first sleep is short: only a long wait justifies the search for
  /// a cycle of waiting ranks.
  template <class Ready>
  void sleep(Ready ready) {
    const auto start = Clock::now();
    const auto deadline = start + wait_policy_.timeout;
    const auto soon = std::min(deadline, start + std::chrono::milliseconds(50));
    const auto try_once_more = [&] {
      if (progress() || ready()) return true;
      fail_if_a_peer_left();
      return false;
    };
    if (failures().sleep(world_rank(), soon, try_once_more)) return;
    const auto announced = failures().announce(world_rank());
    if (waits_for_call()) {
      const std::string ring = failures().block(
          world_rank(), Wait{true, announced.calls(), awaited(),
                             name() + " waits in " + where(completed_) + at_place(table_->slot(rank_, completed_).at)});
      if (!ring.empty()) failures().fail(ErrorCode::mismatch, ring);
    }
    const bool called = failures().sleep(world_rank(), deadline, try_once_more);
    failures().unblock(world_rank());
    if (!called) fail_timeout();
  }

  void wait(std::uint64_t ticket);
  void drop(std::uint64_t ticket) noexcept;
  /// Of the last Pending; returns what may be the last owner of this.
  [[nodiscard]] std::shared_ptr<ThreadRank> release();
  [[noreturn]] void stop();

  /// After a failure: returns when no other rank of the group accesses this rank's memory. None starts to any more.
  void withdraw() const;

  // --- failures

  bool all_past(std::atomic<std::uint64_t> RankProgress::*counter, std::uint64_t operation) const;

  /// True if open() waits only for ranks that still read the slot it needs.
  bool waits_for_slot() const { return opening_ && completed_ > issued_ - operations_in_flight; }
  /// True if other ranks have yet to post the oldest operation.
  bool waits_for_call() const { return !waits_for_slot() && stage_ == Stage::called; }
  /// The operation that this rank waits for: its oldest, or the one that holds the slot it needs.
  std::uint64_t awaited_operation() const { return waits_for_slot() ? issued_ - operations_in_flight : completed_; }

  /// True if `rank` has not called that operation, or not finished it.
  bool is_behind(int rank) const;

  /// The world ranks that are behind.
  std::vector<int> awaited() const;

  std::string name() const { return "rank " + std::to_string(world_rank()); }

  std::string where(std::uint64_t operation) const;
  void fail_if_a_peer_left();
  void fail_timeout();

  std::shared_ptr<ThreadTable> table_;
  int rank_;
  WaitPolicy wait_policy_;
  MakeShare make_share_;
  std::unique_ptr<RankShare> share_;
  std::shared_ptr<Traffic> traffic_;
  mutable Traffic seen_traffic_;  ///< what traffic() returned last
  std::size_t device_ends_ = 0;
  std::map<std::pair<int, int>, std::shared_ptr<ThreadRank>> channels_;
  Stage stage_ = Stage::called;  // of the operation completed_
  std::uint64_t issued_ = 0;
  std::uint64_t completed_ = 0;
  bool opening_ = false;                                       // inside open(), waiting for a slot
  std::array<int, operations_in_flight> exceptions_{};         // std::uncaught_exceptions() at issue
  std::array<std::uint64_t, operations_in_flight> flights_{};  // their numbers in the flight recorder
  int pendings_ = 0;
  std::shared_ptr<ThreadRank> keep_alive_;  // while there are Pendings
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE ThreadRank& ThreadRank::channel(int from, int to) {
  std::shared_ptr<ThreadRank>& end = channels_[{from, to}];
  if (!end)
    end = std::make_shared<ThreadRank>(table_->channel(from, to), rank_ == from ? sender : receiver, wait_policy_,
                                       make_share_, traffic_);
  return *end;
}

DSPP_INLINE std::shared_ptr<ThreadRank> ThreadRank::on_device(MakeShare make_share) {
  return std::make_shared<ThreadRank>(table_->of_device(device_ends_++), rank_, wait_policy_, std::move(make_share),
                                      traffic_);
}

DSPP_INLINE Posted& ThreadRank::open(Collective collective, PurposeAt purpose, int root) {
  const auto turn = this->turn();
  progress_thread().rethrow();
  if (failures().failed()) failures().rethrow();
  if (issued_ >= operations_in_flight) {
    const std::uint64_t before = issued_ - operations_in_flight;
    struct Opening {
      bool& now;
      explicit Opening(bool& flag) : now(flag) { now = true; }
      ~Opening() { now = false; }
    } opening(opening_);
    await([&] { return completed_ > before && all_past(&RankProgress::done, before); });
  }
  Posted& slot = table_->slot(rank_, issued_);
  slot.collective = collective;
  slot.purpose = purpose;
  slot.root = root;
  slot.subject = purpose.subject;
  slot.digest = purpose.digest;
  slot.at = place_of(purpose.site);
  slot.elsewhere = false;
  slot.pairs.clear();
  return slot;
}

DSPP_INLINE Pending<> ThreadRank::publish() {
  const auto turn = this->turn();
  share_->issue(issued_);
  if (pendings_ == 0) {
    active().reserve(active().size() + 1);  // may throw: before anything has changed
    keep_alive_ = shared_from_this();
    active().push_back(this);
  }
  ++pendings_;
  exceptions_[issued_ % operations_in_flight] = std::uncaught_exceptions();
  flights_[issued_ % operations_in_flight] =
      flights().enter(table_->slot(rank_, issued_), size(), issued_, table_->name_words);
  table_->progress(rank_).posted.store(++issued_);
  table_->wake_others(rank_);
  if (share_->is_asynchronous()) progress();
  if (progress_thread().is_running()) progress_thread().begin(table_->slot(rank_, issued_ - 1).bytes());
  static constexpr Completion completion = {
      [](void* who, std::uint64_t ticket) { static_cast<ThreadRank*>(who)->wait(ticket); },
      [](void* who, std::uint64_t ticket) noexcept { static_cast<ThreadRank*>(who)->drop(ticket); },
      [](const void* who, std::uint64_t ticket) {
        const auto* const rank = static_cast<const ThreadRank*>(who);
        const auto its_turn = rank->turn();
        return rank->completed_ > ticket;
      }};
  return Pending<>(&completion, this, issued_ - 1);
}

DSPP_INLINE ProgressThread::Found ThreadRank::advance_all(ThreadFailureState& failures, int world_rank) {
  constexpr Size turn_bytes = 2 * 1024 * 1024;
  using Found = ProgressThread::Found;
  if (failures.failed()) return Found::nothing;
  Found found = Found::nothing;
  for (ThreadRank* end : failures.wait_slot(world_rank).active) {
    if (end->share_->is_asynchronous()) continue;  // of a device, which the rank's thread has
    if (end->advance(turn_bytes) || (end->stage_ == Stage::moved && !failures.failed())) return Found::moved;
    if (end->completed_ < end->issued_) found = Found::waits;
  }
  return found;
}

DSPP_INLINE void ThreadRank::poll() {
  const auto turn = this->turn();
  progress_thread().rethrow();
  if (!failures().failed() && !progress())
    for (ThreadRank* end : active())
      if (end->completed_ < end->issued_) end->fail_if_a_peer_left();
  if (failures().failed()) stop();
}

DSPP_INLINE void ThreadRank::abort(const Error& error) {
  failures().fail(ErrorCode::aborted, aborted_sentence(world_rank(), error.what()), world_rank());
}

DSPP_INLINE void ThreadRank::expire() {
  const auto turn = this->turn();
  for (ThreadRank* end : active())
    if (end->completed_ < end->issued_ && end->stage_ == Stage::called) end->fail_timeout();
  if (failures().failed()) stop();
}

DSPP_INLINE bool ThreadRank::progress() {
  if (advance()) return true;
  for (ThreadRank* other : active()) {
    if (other != this && other->advance()) return true;
  }
  return false;
}

DSPP_INLINE bool ThreadRank::advance(Size most_bytes) {
  if (completed_ == issued_) return false;
  const Posted& mine = table_->slot(rank_, completed_);
  if (stage_ == Stage::called) {
    if (!all_called()) return false;
    stage_ = Stage::moved;
  }
  if (stage_ == Stage::moved) {
    if (!mine.elsewhere && !share_->run(completed_, most_bytes)) return false;
    table_->progress(rank_).done.store(completed_ + 1);
    table_->wake_others(rank_);
    stage_ = Stage::drained;
  }
  if (!mine.elsewhere) {
    if (!is_unread(mine, rank_) && !all_past(&RankProgress::done, completed_)) return false;
    if (!share_->complete(completed_)) return false;
    traffic_->count(mine.collective, mine.purpose, share_->finish());
  }
  flights().leave(flights_[completed_ % operations_in_flight]);
  ++completed_;
  stage_ = Stage::called;
  return true;
}

DSPP_INLINE bool ThreadRank::all_called() {
  if (!all_past(&RankProgress::posted, completed_)) return false;
  const bool elsewhere = table_->slot(rank_, completed_).elsewhere;
  if (completed_ > 0 && !elsewhere && !all_past(&RankProgress::done, completed_ - 1)) return false;
  const auto calls = [&](int r) -> const Posted& { return table_->slot(r, completed_); };
  if (!first_to_differ(size(), calls)) return true;
  failures().fail(ErrorCode::mismatch, describe_mismatch(table_->name, table_->members, completed_, calls));
  return false;
}

DSPP_INLINE void ThreadRank::wait(std::uint64_t ticket) {
  std::shared_ptr<ThreadRank> last;  // destroyed after the turn, whose lock it may own
  const auto turn = this->turn();
  struct Release {
    ThreadRank& rank;
    std::shared_ptr<ThreadRank>& last;
    ~Release() { last = rank.release(); }
  } on_exit{*this, last};
  progress_thread().rethrow();
  await([&] { return completed_ > ticket; });
}

DSPP_INLINE void ThreadRank::drop(std::uint64_t ticket) noexcept {
  std::shared_ptr<ThreadRank> last;  // as in wait()
  const auto turn = this->turn();
  const bool unwinds = std::uncaught_exceptions() > exceptions_[ticket % operations_in_flight];
  try {
    if (completed_ <= ticket && (unwinds || progress_thread().has_thrown())) {
      failures().fail(ErrorCode::peer_lost,
                      "dspp: the other ranks need " + name() + " in " + where(ticket) +
                          ", but it gave up after an exception. See the error of " + name() + ".",
                      world_rank());
      withdraw();
    } else {
      await([&] { return completed_ > ticket; });
    }
  } catch (const std::bad_alloc&) {
    failures().fail(ErrorCode::peer_lost, no_memory_words, world_rank());
    withdraw();
  } catch (const Error&) {  // the group keeps the error and throws it to every later caller
  }
  last = release();
}

DSPP_INLINE std::shared_ptr<ThreadRank> ThreadRank::release() {
  if (--pendings_ > 0) return {};
  std::erase(active(), this);
  return std::move(keep_alive_);
}

DSPP_INLINE void ThreadRank::stop() {
  withdraw();
  failures().rethrow();
}

DSPP_INLINE void ThreadRank::withdraw() const {
  for (int r = 0; r < size(); ++r) {
    while (r != rank_ && table_->busy[static_cast<std::size_t>(r)].now.load()) std::this_thread::yield();
  }
  share_->stop();
}

DSPP_INLINE bool ThreadRank::all_past(std::atomic<std::uint64_t> RankProgress::*counter,
                                      std::uint64_t operation) const {
  for (int r = 0; r < size(); ++r) {
    if ((table_->progress(r).*counter).load() <= operation) return false;
  }
  return true;
}

DSPP_INLINE bool ThreadRank::is_behind(int rank) const {
  if (rank == rank_) return false;
  const RankProgress& other = table_->progress(rank);
  const std::uint64_t operation = awaited_operation();
  if (!waits_for_call()) return other.done.load() <= operation;
  const bool moved_before = other.done.load() >= operation || table_->slot(rank_, operation).elsewhere;
  return other.posted.load() <= operation || !moved_before;
}

DSPP_INLINE std::vector<int> ThreadRank::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (is_behind(r)) ranks.push_back(table_->world_rank(r));
  }
  return ranks;
}

DSPP_INLINE std::string ThreadRank::where(std::uint64_t operation) const {
  return describe(table_->slot(rank_, operation), size()) + ", the " + ordinal(operation) + " operation of " +
         table_->name;
}

DSPP_INLINE void ThreadRank::fail_if_a_peer_left() {
  for (int r = 0; r < size(); ++r) {
    const int world = table_->world_rank(r);
    if (!is_behind(r) || !failures().wait_slot(world).left.load() || !is_behind(r))
      continue;  // retry: it may have just arrived
    const std::string other = "rank " + std::to_string(world);
    failures().fail(ErrorCode::peer_lost,
                    "dspp: " + name() + " needs " + other + " in " + where(awaited_operation()) + ", but " + other +
                        " has ended. Make every rank call the same operations.",
                    world);
  }
}

DSPP_INLINE void ThreadRank::fail_timeout() {
  const std::vector<int> ranks = awaited();
  if (ranks.empty()) return;
  const bool came = !waits_for_call();
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", std::chrono::duration<double>(wait_policy_.timeout).count());
  failures().fail_timeout("dspp: " + name() + " needs " + list_ranks(ranks) + " in " + where(awaited_operation()) +
                          ", but waited " + seconds + " s and " + (ranks.size() == 1 ? "it" : "they") + " did not " +
                          (came ? "finish it" : "come") + ". Look for what keeps them, or raise timeout_seconds.");
}

DSPP_INLINE void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
