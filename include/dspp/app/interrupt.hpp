// SPDX-License-Identifier: Apache-2.0
/// Ctrl-C as a flag that the program polls, without a signal handler or anything global.
#pragma once

#include <pthread.h>
#include <unistd.h>
#include <csignal>
#include <ctime>

#include <atomic>
#include <thread>

#include <dspp/base/config.hpp>

namespace dspp {

/// While one lives, the first SIGINT, SIGTERM, SIGHUP (a terminal that closed) or SIGUSR1 makes requested() true and
/// the second ends the process at once, with status 128 + signal. mpirun forwards SIGUSR1 to its processes; at a SIGINT
/// or SIGTERM it kills them within two seconds.
///
/// Create it before any other thread: threads inherit the blocked signals, and a thread of its own waits for them.
/// A signal that was ignored when the process started stays ignored.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const { return requested_.load(std::memory_order_relaxed); }

 private:
  void watch(const std::stop_token& stop);

  sigset_t signals_{}, before_{};
  std::atomic<bool> requested_{false};
  std::jthread watcher_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Interrupt::Interrupt() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  watcher_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

DSPP_INLINE Interrupt::~Interrupt() {
  watcher_.request_stop();
  watcher_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

DSPP_INLINE void Interrupt::watch(const std::stop_token& stop) {
  const timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
  while (!stop.stop_requested()) {
    const int signal = sigtimedwait(&signals_, nullptr, &pause);
    if (signal < 0) continue;  // timed out
    if (requested_.exchange(true)) _exit(128 + signal);
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
