// SPDX-License-Identifier: Apache-2.0
/// Alternating timing of several variants, so that other load on the machine affects all of them alike.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include <dspp/base/config.hpp>

#if DSPP_HAS_OPENMP()
#include <omp.h>
#endif

namespace dspp::bench {

/// The median time of each variant in seconds, over rounds in which each runs once.
template <class... Ways>
std::array<double, sizeof...(Ways)> alternate(int rounds, const Ways&... ways) {
  using Clock = std::chrono::steady_clock;
  std::array<std::vector<double>, sizeof...(Ways)> seconds;
  for (int round = -1; round < rounds; ++round) {
    std::size_t i = 0;
    const auto time = [&](const auto& way) {
      const auto start = Clock::now();
      way();
      const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
      if (round >= 0) seconds[i].push_back(elapsed);  // the first round warms up
      ++i;
    };
    (time(ways), ...);
  }
  std::array<double, sizeof...(Ways)> medians;
  std::transform(seconds.begin(), seconds.end(), medians.begin(), [](std::vector<double>& all) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
  });
  return medians;
}

/// Sets the number of threads that the calling thread's kernels use, where the build has threads.
inline void use_threads([[maybe_unused]] int threads) {
#if DSPP_HAS_OPENMP()
  omp_set_num_threads(threads);
#endif
}

}  // namespace dspp::bench
