// SPDX-License-Identifier: Apache-2.0
/// Ends a process whose ranks do not all start.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include <dspp/comm/last_resort.hpp>
#include <dspp/comm/threads/run_ranks.hpp>
#include <dspp/launch/launch.hpp>

namespace dspp::detail {

/// Ends this process with a sentence unless it is destroyed in time: while the ranks connect they are in MPI calls,
/// which wait for ever for a missing rank. Rank 0 reports; the others do two seconds later, in case rank 0 is missing.
/// If the watching thread hangs as well, the system ends the process heartbeat_seconds after that.
class MeetingWatch {
 public:
  MeetingWatch(const Launch& launch, double timeout_seconds, double heartbeat_seconds)
      : at_the_latest_(timeout_seconds + 2 + heartbeat_seconds),
        watcher_([launch, timeout_seconds](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any stopped;
          std::unique_lock lock(mutex);
          const std::chrono::duration<double> time(timeout_seconds + (launch.is_first() ? 0 : 2.0));
          stopped.wait_for(lock, stop, time, [] { return false; });
          if (stop.stop_requested()) return;
          char seconds[32];
          std::snprintf(seconds, sizeof seconds, "%g", timeout_seconds);
          const std::string who = "rank " + std::to_string(launch.rank), size = std::to_string(launch.size);
          write_to_stderr("dspp: " + who + " needs " + (launch.is_first() ? "all " + size + " ranks" : "rank 0") +
                          " to begin, but waited " + seconds +
                          " s and not all came. Look for what keeps them, or raise "
                          "timeout_seconds.");
          _exit(1);
        }) {}

 private:
  LastResort at_the_latest_;
  std::jthread watcher_;
};

}  // namespace dspp::detail
