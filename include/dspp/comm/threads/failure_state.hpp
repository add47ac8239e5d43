// SPDX-License-Identifier: Apache-2.0
/// What all thread groups of one world share: the first failure, and a wait slot per rank.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/comm/flight_recorder.hpp>
#include <dspp/comm/last_resort.hpp>
#include <dspp/comm/progress_thread.hpp>

namespace dspp::detail {

class ThreadRank;

inline constexpr std::size_t cache_line_bytes = 128;  // two lines of 64: the prefetcher loads pairs

/// The sentence used when memory is exhausted: fits into a string without allocation.
inline constexpr const char* no_memory_words = "dspp: no memory";

using Clock = std::chrono::steady_clock;

/// Where a rank's thread sleeps, and its ends of groups with operations under way, `active`, which it uses in its turns
/// alone.
struct alignas(cache_line_bytes) WaitSlot {
  std::atomic<int> sleepers{0};
  std::atomic<bool> left{false};
  std::atomic<std::uint64_t> calls{0};  // changes under the mutex
  std::mutex mutex;
  std::condition_variable called;
  std::vector<ThreadRank*> active;
  FlightRecorder flights;   // written in its turns, read by all
  ProgressThread progress;  // last: it uses the others
};

/// What a rank waits for in a long sleep: the world ranks that have yet to call its operation.
struct Wait {
  bool blocked = false;
  std::uint64_t calls = 0;  // of the slot, before `absent` was computed: another value means a wake-up
  std::vector<int> absent;
  std::string what;
};

/// The failure state of a world of threads: one failure stops all of its groups with one sentence.
class ThreadFailureState {
 public:
  explicit ThreadFailureState(int ranks)
      : wait_slots_(std::make_unique<WaitSlot[]>(static_cast<std::size_t>(ranks))),
        waits_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(waits_.size()); }
  WaitSlot& wait_slot(int rank) { return wait_slots_[static_cast<std::size_t>(rank)]; }

  bool failed() const { return failed_.load(); }

  /// Records the first failure and wakes all ranks. `culprit` is the world rank to blame, -1 if none. True if first.
  bool fail(ErrorCode code, const std::string& sentence, int culprit = -1);

  /// The process ends that long after a failure, past or future. Null disarms it.
  void set_last_resort(LastResort* last, double seconds);

  /// The failure as an exception. Only after failed().
  [[noreturn]] void rethrow() const { throw Error(code_, sentence_); }
  int culprit() const { return failed() ? culprit_ : -1; }

  /// The same for a rank that timed out; also keeps the last operations of all ranks.
  void fail_timeout(const std::string& sentence);
  std::string last_operations() const;

  /// Wakes a rank if it sleeps. The caller has published (seq_cst) what the rank sleeps for.
  void wake(int rank);

  /// While it lives, wake() reaches the rank: publishing changes calls() of its slot.
  class Announced {
   public:
    explicit Announced(WaitSlot& slot) : slot_(slot), calls_(slot.calls.load()) {}
    Announced(const Announced&) = delete;
    Announced& operator=(const Announced&) = delete;
    ~Announced() { slot_.sleepers.fetch_sub(1); }
    std::uint64_t calls() const { return calls_; }

   private:
    WaitSlot& slot_;
    std::uint64_t calls_;
  };

  Announced announce(int rank);

  /// Sleeps until woken or until `deadline`, unless `ready` (tried after the announcement) is true. False: timed out.
  template <class Ready>
  bool sleep(int rank, Clock::time_point deadline, Ready ready) {
    const Announced announced = announce(rank);
    if (ready() || failed()) return true;
    WaitSlot& s = wait_slot(rank);
    std::unique_lock lock(s.mutex);
    return s.called.wait_until(lock, deadline, [&] { return s.calls.load() != announced.calls(); });
  }

  /// Records that `rank` waits for the ranks `wait.absent`, and looks for a cycle of such waits, a deadlock. `wait` was
  /// made after the announcement whose calls it holds. Returns the sentence about the cycle, or an empty one. unblock()
  /// when the wait is over.
  std::string block(int rank, Wait wait);
  void unblock(int rank);

 private:
  static void call(WaitSlot& s);

  /// Depth first along waits that are certain: recorded, and not being woken.
  bool find_ring(int from, int to, std::vector<int>& ring, std::vector<bool>& seen);

  std::unique_ptr<WaitSlot[]> wait_slots_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::vector<Wait> waits_;
  ErrorCode code_ = ErrorCode::aborted;
  std::string sentence_, last_operations_;
  int culprit_ = -1;
  LastResort* last_resort_ = nullptr;
  double last_seconds_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool ThreadFailureState::fail(ErrorCode code, const std::string& sentence, int culprit) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load()) return false;
    code_ = code;
    sentence_ = sentence;
    culprit_ = culprit;
    failed_.store(true);
    if (last_resort_) last_resort_->arm(last_seconds_);
  }
  for (int r = 0; r < ranks(); ++r) call(wait_slot(r));
  return true;
}

DSPP_INLINE void ThreadFailureState::set_last_resort(LastResort* last, double seconds) {
  const std::lock_guard lock(mutex_);
  last_resort_ = last;
  last_seconds_ = seconds;
  if (last && failed_.load()) last->arm(seconds);
}

DSPP_INLINE void ThreadFailureState::fail_timeout(const std::string& sentence) {
  std::string list = list_operations(ranks(), [&](int r) { return &wait_slot(r).flights; });
  if (!fail(ErrorCode::peer_lost, sentence)) return;
  const std::lock_guard lock(mutex_);
  last_operations_ = std::move(list);
}

DSPP_INLINE std::string ThreadFailureState::last_operations() const {
  const std::lock_guard lock(mutex_);
  return last_operations_;
}

DSPP_INLINE void ThreadFailureState::wake(int rank) {
  WaitSlot& s = wait_slot(rank);
  if (s.sleepers.load() > 0) call(s);
}

DSPP_INLINE ThreadFailureState::Announced ThreadFailureState::announce(int rank) {
  wait_slot(rank).sleepers.fetch_add(1);
  return Announced(wait_slot(rank));
}

DSPP_INLINE std::string ThreadFailureState::block(int rank, Wait wait) {
  const std::lock_guard lock(mutex_);
  waits_[static_cast<std::size_t>(rank)] = std::move(wait);
  std::vector<int> ring;
  std::vector<bool> seen(waits_.size());
  if (!find_ring(rank, rank, ring, seen)) return {};
  std::string sentence = "dspp: the ranks wait for one another in different groups: ";
  for (int r : ring) sentence += waits_[static_cast<std::size_t>(r)].what + (r == ring.back() ? "" : ", but ");
  return sentence + ". Make every rank call the same operations of its groups in the same order.";
}

DSPP_INLINE void ThreadFailureState::unblock(int rank) {
  const std::lock_guard lock(mutex_);
  Wait none;  // swapped, not assigned: an assigned string would keep its memory
  std::swap(waits_[static_cast<std::size_t>(rank)], none);
}

DSPP_INLINE void ThreadFailureState::call(WaitSlot& s) {
  {
    const std::lock_guard lock(s.mutex);
    s.calls.fetch_add(1);
  }
  s.called.notify_all();
}

DSPP_INLINE bool ThreadFailureState::find_ring(int from, int to, std::vector<int>& ring, std::vector<bool>& seen) {
  const Wait& wait = waits_[static_cast<std::size_t>(from)];
  if (seen[static_cast<std::size_t>(from)] || !wait.blocked || wait.calls != wait_slot(from).calls.load()) return false;
  seen[static_cast<std::size_t>(from)] = true;
  ring.push_back(from);
  for (int next : wait.absent) {
    if (next == to || find_ring(next, to, ring, seen)) return true;
  }
  ring.pop_back();
  return false;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
