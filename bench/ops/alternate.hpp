// SPDX-License-Identifier: Apache-2.0
/// Timing of several ways to do one thing, in turns: what else the machine does meets all of them alike.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dspp::bench {

/// The shortest time of each way in seconds, over rounds in which each runs once.
template <class... Ways>
std::array<double, sizeof...(Ways)> alternate(int rounds, const Ways&... ways) {
  using Clock = std::chrono::steady_clock;
  std::array<double, sizeof...(Ways)> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int round = -1; round < rounds; ++round) {
    std::size_t i = 0;
    const auto time = [&](const auto& way) {
      const auto start = Clock::now();
      way();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (round >= 0) best[i] = std::min(best[i], seconds);  // the first round warms up
      ++i;
    };
    (time(ways), ...);
  }
  return best;
}

/// Sets the number of threads that the calling thread's kernels use, where the build has threads.
inline void use_threads([[maybe_unused]] int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#endif
}

}  // namespace dspp::bench
