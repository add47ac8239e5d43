// SPDX-License-Identifier: Apache-2.0
/// Operations beside those of a rank: of the Cpu by a thread, of a GPU on a stream of their own.
#pragma once

#include <functional>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/config.hpp>
#include <dspp/tensor/device.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#if DSPP_HAS_OPENMP()
#include <omp.h>
#endif
#endif

namespace dspp {

/// A thread of a rank on the Cpu, which begins with the first work. Loops of the work have one thread, and a profile
/// does not hear of it.
///
/// Used by the rank's thread only.
class HostLane {
 public:
  HostLane() = default;
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;
  /// Waits for work under way, and forgets what it threw, and what was to come after it.
  ~HostLane();

  /// Begins work(on), which launches operations in the memory `on`, after all that were issued in the rank's memory and
  /// after the work before. Until wait() the rank writes nothing that the work reads, and reads nothing that it writes;
  /// blocks that it uses stay. It takes none. After work that throws, what is given until wait() is not done.
  void start(Pool& memory, std::function<void(Pool& on)> work);
  /// What is issued in the rank's memory from now on comes after the work.
  ///
  /// Throws   what work threw, each time until other work is given
  void wait();

 private:
  struct State;
  State* state_ = nullptr;
};

namespace detail {
/// Work is done when it begins.
template <Device D>
struct LaneOf {
  struct type {
    void start(Memory<D>& memory, const std::function<void(Memory<D>&)>& work) { work(memory); }
    void wait() {}
  };
};
template <Device D>
requires requires {
  typename D::Lane;
}
struct LaneOf<D> {
  using type = typename D::Lane;
};
}  // namespace detail

/// A HostLane, or what a device has in its place, made with the first work; a device that has none does it at once. On
/// paper work takes no time and no memory.
template <Device D>
class Lane {
 public:
  /// start(memory, make()), as in HostLane.
  template <class Make>
  constexpr void start([[maybe_unused]] Memory<D>& memory, [[maybe_unused]] const Make& make) {
    if constexpr (D::real) lane_.get_or_make().start(memory, make());
  }
  constexpr void wait() {
    if constexpr (D::real)
      if (lane_) lane_->wait();
  }
  /// Waits for work under way, and forgets what it threw.
  constexpr void end() { lane_ = {}; }

 private:
  AtRunTime<typename detail::LaneOf<D>::type> lane_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

struct HostLane::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void(Pool&)>> works;  ///< the first is under way
  std::exception_ptr thrown;
  bool was_seen = false;  ///< by a wait()
  bool ends = false;
  Pool memory;
  std::thread thread;  // last: it uses the others

  void run() {
#if DSPP_HAS_OPENMP()
    omp_set_num_threads(1);
#endif
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ends || !works.empty(); });
      if (works.empty()) return;
      const auto& now = works.front();  // stays where it is while others are added
      lock.unlock();
      std::exception_ptr error;
      try {
        now(memory);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error ? works.clear() : works.pop_front();
      if (error) thrown = error, was_seen = false;
      if (works.empty()) changed.notify_all();
    }
  }
};

DSPP_INLINE HostLane::~HostLane() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
    if (state_->works.size() > 1) state_->works.resize(1);
  }
  state_->changed.notify_all();
  state_->thread.join();
  delete state_;
}

DSPP_INLINE void HostLane::start(Pool&, std::function<void(Pool&)> work) {
  if (!state_) {
    auto state = std::make_unique<State>();
    state->thread = std::thread([own = state.get()] { own->run(); });
    state_ = state.release();
  }
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->thrown && !state_->was_seen) return;
    state_->thrown = nullptr;
    state_->works.push_back(std::move(work));
  }
  state_->changed.notify_all();
}

DSPP_INLINE void HostLane::wait() {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->works.empty(); });
  state_->was_seen = true;
  if (state_->thrown) std::rethrow_exception(state_->thrown);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
