// SPDX-License-Identifier: Apache-2.0
/// Standard output as a result of the program: what could not be printed is an error.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <system_error>

#include <dspp/base/config.hpp>

namespace dspp {

/// Occupies closed standard streams with descriptors that refuse use. Call it first in main(): otherwise the first file
/// that the program opens gets their number and receives what is printed. From then on the process ignores SIGXFSZ, so
/// that printing beyond its file-size limit is an error for output_status and does not kill it.
void hold_standard_streams();

/// The exit status for what `who` has printed so far: 0, or 2 after a sentence on standard error if some of it could
/// not be written (the disk is full, the reader is gone).
int output_status(const char* who);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void hold_standard_streams() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int held = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

DSPP_INLINE int output_status(const char* who) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed) return 0;
  const std::string why =
      errno != 0 ? std::error_code(errno, std::generic_category()).message() : "a write to it has failed";
  std::fprintf(stderr,
               "dspp: %s needs a standard output that takes what it prints, but it does not: %s. Free space there, or "
               "send it elsewhere.\n",
               who, why.c_str());
  return 2;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
