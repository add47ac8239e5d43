// SPDX-License-Identifier: Apache-2.0
/// Runs one thread per rank and stops them together.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <dspp/base/function_ref.hpp>
#include <dspp/comm/threads/threads.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include <dspp/base/out_of_memory.hpp>
#include <dspp/comm/last_resort.hpp>
#include <dspp/comm/posted.hpp>
#endif

namespace dspp {

/// Calls f(rank) on one new thread per rank of the group and returns when all have ended. A rank that throws stops the
/// others at once; run_ranks then throws the exception of the rank to blame, else that of the lowest rank. A
/// std::bad_alloc is thrown as Error(out_of_memory), also if the system has no memory or no thread for a rank.
///
/// A thread cannot be ended from outside. If a rank still runs a tenth of the timeout after a failure, and at least
/// half a second, the process ends: `last_words(error, culprit)` prints the failure and returns the exit status, and a
/// second sentence names the rank. If that hangs too, since the waiting thread hangs or nobody reads standard error,
/// the system ends the process heartbeat_seconds later by SIGKILL.
template <class F, class LastWords>
void run_ranks(ThreadGroup group, F&& f, LastWords last_words);

/// The same with status 1.
template <class F>
void run_ranks(ThreadGroup group, F&& f);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Writes a line to standard error without stdio, whose locks a hanging rank may hold.
void write_to_stderr(std::string line);

using LastWords = FunctionRef<int(const std::exception_ptr&, int)>;
void run_threads(ThreadGroup group, FunctionRef<void(int)> f, LastWords last_words);
/// Prints the failure; returns 1.
int write_last_words(const std::exception_ptr& error, int culprit);

}  // namespace detail

template <class F, class LastWords>
void run_ranks(ThreadGroup group, F&& f, LastWords last_words) {
  const auto one_rank = [&](int rank) { f(rank); };
  const auto last = [&](const std::exception_ptr& error, int culprit) -> int { return last_words(error, culprit); };
  detail::run_threads(std::move(group), one_rank, last);
}

template <class F>
void run_ranks(ThreadGroup group, F&& f) {
  run_ranks(std::move(group), f, detail::write_last_words);
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

/// Which ranks have ended, for the thread that waits for them.
class EndOfRanks {
 public:
  using Clock = std::chrono::steady_clock;
  explicit EndOfRanks(const ThreadGroup& group)
      : group_(group), ended_(static_cast<std::size_t>(group.size()), false), left_(group.size()) {}

  void end(int rank);

  /// Returns none when all have ended, or those still running `grace_seconds` after a failure. A rank that runs on
  /// alone after the others, which may be intended, only gets a warning.
  std::vector<int> wait(double grace_seconds);

 private:
  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

  void name_the_last();
  std::vector<int> running() const;

  const ThreadGroup& group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ended_;
  int left_;
  bool named_ = false;
};

/// The exceptions of the ranks, by rank.
class ThrownByRanks {
 public:
  explicit ThrownByRanks(const ThreadGroup& group) : group_(group), errors_(static_cast<std::size_t>(group.size())) {}

  void take(int rank);

  /// Throws the exception of the rank to blame if it has ended, else the failure.
  [[noreturn]] void rethrow_first() const;

  /// After all have ended: throws the exception of the rank to blame, else that of the lowest rank, if any.
  void rethrow_any() const;

 private:
  void rethrow_of_culprit() const;

  const ThreadGroup& group_;
  mutable std::mutex mutex_;
  std::vector<std::exception_ptr> errors_;
};

/// While it lives, a failure of the group ends the process after some time.
class EndAfterFailure {
 public:
  EndAfterFailure(ThreadGroup& group, double seconds) : group_(group) { group_.set_last_resort(&last_, seconds); }
  EndAfterFailure(const EndAfterFailure&) = delete;
  EndAfterFailure& operator=(const EndAfterFailure&) = delete;
  ~EndAfterFailure() { group_.set_last_resort(nullptr, 0); }

 private:
  ThreadGroup& group_;
  LastResort last_;
};

DSPP_INLINE void EndOfRanks::end(int rank) {
  const std::lock_guard lock(mutex_);
  ended_[static_cast<std::size_t>(rank)] = true;
  --left_;
  changed_.notify_one();
}

DSPP_INLINE std::vector<int> EndOfRanks::wait(double grace_seconds) {
  std::unique_lock lock(mutex_);
  auto failed = Clock::time_point::max(), alone = failed;
  while (left_ > 0) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));  // a failure does not notify: it is polled
    const auto now = Clock::now();
    if (group_.failed() && left_ > 0) {
      failed = std::min(failed, now);
      if (seconds(now - failed) > grace_seconds) return running();
    } else if (left_ == 1 && group_.size() > 1 && !named_) {
      alone = std::min(alone, now);
      if (seconds(now - alone) > group_.timeout_seconds()) name_the_last();
    }
  }
  return {};
}

DSPP_INLINE void EndOfRanks::name_the_last() {
  named_ = true;
  char text[32];
  std::snprintf(text, sizeof text, "%g", group_.timeout_seconds());
  write_to_stderr("dspp: warning: " + list_ranks(running()) + " still runs, " + text +
                  " s after all other ranks have ended. Look for what keeps it.");
}

DSPP_INLINE std::vector<int> EndOfRanks::running() const {
  std::vector<int> ranks;
  for (int r = 0; r < group_.size(); ++r) {
    if (!ended_[static_cast<std::size_t>(r)]) ranks.push_back(group_.world_rank(r));
  }
  return ranks;
}

DSPP_INLINE void ThrownByRanks::take(int rank) {
  const std::lock_guard lock(mutex_);
  errors_[static_cast<std::size_t>(rank)] = std::current_exception();
}

DSPP_INLINE void ThrownByRanks::rethrow_first() const {
  rethrow_of_culprit();
  group_.rethrow();
}

DSPP_INLINE void ThrownByRanks::rethrow_any() const {
  rethrow_of_culprit();
  for (const std::exception_ptr& error : errors_) {
    if (error) std::rethrow_exception(error);
  }
}

DSPP_INLINE void ThrownByRanks::rethrow_of_culprit() const {
  const int culprit = group_.culprit();
  for (int r = 0; r < group_.size(); ++r) {
    if (group_.world_rank(r) != culprit) continue;
    const std::lock_guard lock(mutex_);  // the rank may be about to end
    const std::exception_ptr error = errors_[static_cast<std::size_t>(r)];
    if (error) std::rethrow_exception(error);
  }
}

DSPP_INLINE void write_to_stderr(std::string line) {
  line += '\n';
  for (std::size_t at = 0; at < line.size();) {
    const auto written = write(STDERR_FILENO, line.data() + at, line.size() - at);
    if (written <= 0) return;
    at += static_cast<std::size_t>(written);
  }
}

DSPP_INLINE void run_threads(ThreadGroup group, FunctionRef<void(int)> f, LastWords last_words) {
  ThrownByRanks thrown(group);
  EndOfRanks end(group);
  const auto run_one = [&](int rank) {
    try {
      f(rank);
      group.leave(rank);
    } catch (const std::bad_alloc&) {
      char who[32];
      std::snprintf(who, sizeof who, "rank %d", group.world_rank(rank));
      try {
        or_out_of_memory(who, []() -> void { throw std::bad_alloc(); });
      } catch (const std::exception& error) {
        thrown.take(rank);
        group.abort(rank, error.what());
      }
    } catch (const std::exception& error) {
      thrown.take(rank);
      group.abort(rank, error.what());
    } catch (...) {
      thrown.take(rank);
      group.abort(rank, "it threw something that is not a std::exception");
    }
    end.end(rank);
  };
  const double grace_seconds = std::max(0.5, group.timeout_seconds() / 10);
  const EndAfterFailure at_the_latest(group, grace_seconds + group.heartbeat_seconds());
  for (int r = 0; r < group.size(); ++r) group.join(r);
  {
    std::vector<std::jthread> threads;
    try {
      or_out_of_memory("a rank's thread", [&] {
        for (int r = 0; r < group.size(); ++r) threads.emplace_back(run_one, r);
      });
    } catch (const std::exception& error) {
      const int first = static_cast<int>(threads.size());
      thrown.take(first);
      group.abort(first, error.what());
      for (int r = first; r < group.size(); ++r) end.end(r);
    }
    const std::vector<int> stuck = end.wait(grace_seconds);
    if (!stuck.empty()) {
      int status = 1;
      try {
        thrown.rethrow_first();
      } catch (...) {
        status = last_words(std::current_exception(), group.culprit());
      }
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%g", grace_seconds);
      write_to_stderr("dspp: all ranks need to stop after that, but " + list_ranks(stuck) + " still ran " + seconds +
                      " s later, so the process ends. Look for what keeps " + (stuck.size() == 1 ? "it." : "them."));
      if (const std::string list = group.last_operations(); !list.empty()) write_to_stderr(list);
      std::_Exit(status);
    }
  }
  thrown.rethrow_any();
}

DSPP_INLINE int write_last_words(const std::exception_ptr& error, int) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    write_to_stderr(caught.what());
  } catch (...) {
    write_to_stderr("dspp: a rank stopped with an exception that is not a std::exception.");
  }
  return 1;
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
