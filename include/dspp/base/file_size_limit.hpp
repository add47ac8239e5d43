// SPDX-License-Identifier: Apache-2.0
/// Turns a write beyond the file-size limit of the process (RLIMIT_FSIZE) into an error, EFBIG, instead of a signal.
#pragma once

#include <pthread.h>

#include <csignal>
#include <ctime>

#include <dspp/base/config.hpp>

namespace dspp {

/// While it lives, SIGXFSZ does not reach the calling thread: a write beyond the limit returns EFBIG. The destructor
/// clears a pending signal of such a write before it restores the thread's mask.
class FileSizeLimitAsError {
 public:
  FileSizeLimitAsError() noexcept {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeLimitAsError() {
    if (sigismember(&before_, SIGXFSZ) == 1) return;
    const std::timespec now{};
    sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeLimitAsError(const FileSizeLimitAsError&) = delete;
  FileSizeLimitAsError& operator=(const FileSizeLimitAsError&) = delete;

 private:
  sigset_t signal_, before_;
};

}  // namespace dspp
