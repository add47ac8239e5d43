// SPDX-License-Identifier: Apache-2.0
/// A thread of a rank that advances the rank's collectives while the rank computes.
#pragma once

#include <functional>
#include <mutex>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>
#include <dspp/comm/async_progress.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include <dspp/base/out_of_memory.hpp>
#endif

namespace dspp::detail {

/// The thread, and the turns that it takes with the rank's own. Before start() there is neither.
///
/// Cost     of a turn a branch, or with the thread an uncontended lock; while operations wait for other ranks the
///          thread looks every 50 microseconds, and while there are none it sleeps
class ProgressThread {
 public:
  enum class Found { moved, waits, nothing };

  ProgressThread() = default;
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread() { stop(); }

  /// `advance` goes on with what is under way, in steps of which each is short. If it throws, the thread ends, and
  /// rethrow() throws that. Called by the rank's thread, as is the rest.
  ///
  /// Throws   Error(out_of_memory) if the system has no thread
  void start(std::function<Found()> advance);
  /// Returns when the thread has ended.
  void stop();
  bool is_running() const { return state_ != nullptr; }

  /// While it lives the thread advances nothing: the rank holds it wherever it uses its communicators.
  [[nodiscard]] std::unique_lock<std::mutex> turn() const;
  /// Within a turn: throws what the thread threw. An operation is then half done, as if the rank's own call had thrown.
  void rethrow() const;
  bool has_thrown() const;
  /// What the thread changes, as it is now: `shared` itself, or its copy in `own`.
  template <class T>
  const T& read(const T& shared, T& own) const {
    const auto lock = turn();
    if (!lock) return shared;
    own = shared;
    return own;
  }
  /// Within a turn: an operation that moves so many bytes is under way. For few bytes the thread is not woken.
  void begin(Size bytes);
  /// It is, and goes on with what else is under way, too.
  bool wakes_for(Size bytes) const { return is_running() && bytes >= worth_a_wake; }

 private:
  struct State;
  State* state_ = nullptr;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

struct ProgressThread::State {
  std::function<Found()> advance;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> comers{0};  ///< the rank's thread, while it waits for its turn: a mutex is not fair
  bool begins = false, ends = false;
  std::exception_ptr thrown;
  std::thread thread;  // last: it uses the others

  void run() {
    std::unique_lock lock(mutex);
    while (!ends) {
      Found found = Found::nothing;
      try {
        found = advance();
      } catch (...) {
        thrown = std::current_exception();
        return;
      }
      if (found == Found::nothing) {
        changed.wait(lock, [&] { return begins || ends; });
        begins = false;
      } else if (found == Found::waits) {
        changed.wait_for(lock, std::chrono::microseconds(50), [&] { return ends; });
      } else {
        lock.unlock();
        while (comers.load() > 0) std::this_thread::yield();
        lock.lock();
      }
    }
  }
};

DSPP_INLINE void ProgressThread::start(std::function<Found()> advance) {
  stop();
  or_out_of_memory("a progress thread", [&] {
    auto state = std::make_unique<State>();
    state->advance = std::move(advance);
    try {
      state->thread = std::thread([own = state.get()] { own->run(); });
    } catch (const std::system_error&) {
      throw std::bad_alloc();
    }
    state_ = state.release();
  });
}

DSPP_INLINE void ProgressThread::stop() {
  if (!state_) return;
  {
    const auto lock = turn();
    state_->ends = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
  delete std::exchange(state_, nullptr);
}

DSPP_INLINE std::unique_lock<std::mutex> ProgressThread::turn() const {
  if (!state_) return {};
  state_->comers.fetch_add(1);
  std::unique_lock lock(state_->mutex);
  state_->comers.fetch_sub(1);
  return lock;
}

DSPP_INLINE void ProgressThread::rethrow() const {
  if (has_thrown()) std::rethrow_exception(state_->thrown);
}

DSPP_INLINE bool ProgressThread::has_thrown() const {
  return state_ && state_->thrown;
}

DSPP_INLINE void ProgressThread::begin(Size bytes) {
  if (!wakes_for(bytes)) return;
  state_->begins = true;
  state_->changed.notify_all();
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
