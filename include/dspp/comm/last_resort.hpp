// SPDX-License-Identifier: Apache-2.0
/// Ends this process if the code that should end it hangs.
#pragma once

#include <csignal>
#include <ctime>

#include <dspp/base/config.hpp>

namespace dspp::detail {

/// A kernel timer that kills this process with SIGKILL unless it is destroyed in time. Code that watches over ranks may
/// hang on a lock, get no core, or write to a pipe that nobody reads; the kernel needs no thread of this process. Does
/// nothing if the system has no timer left.
class LastResort {
 public:
  /// Does nothing before arm().
  LastResort();
  explicit LastResort(double seconds) : LastResort() { arm(seconds); }
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;
  ~LastResort() {
    if (there_) timer_delete(timer_);
  }

  /// Starts the timer. Callable from any thread.
  void arm(double seconds);

 private:
  timer_t timer_{};
  bool there_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE LastResort::LastResort() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  there_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
}

DSPP_INLINE void LastResort::arm(double seconds) {
  if (!there_) return;
  const double most = seconds < 1e8 ? seconds : 1e8;
  itimerspec time{};
  time.it_value.tv_sec = static_cast<std::time_t>(most);
  time.it_value.tv_nsec = 1 + static_cast<long>((most - static_cast<double>(time.it_value.tv_sec)) * 999'999'998);
  timer_settime(timer_, 0, &time, nullptr);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
