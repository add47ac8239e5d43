// SPDX-License-Identifier: Apache-2.0
/// A write beyond the file-size limit of the process (RLIMIT_FSIZE) as an error, EFBIG, instead of a signal that kills.
#pragma once

#include <pthread.h>

#include <csignal>
#include <ctime>

#include <dspp/base/config.hpp>

namespace dspp {

/// While it lives, SIGXFSZ does not reach the calling thread: a write beyond the limit returns EFBIG. The signal that
/// such a write left pending is taken off before the thread's mask is as it was.
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
