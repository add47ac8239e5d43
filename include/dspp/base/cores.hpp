// SPDX-License-Identifier: Apache-2.0
/// The processor cores that a process may use: by its affinity mask and its control group, not those of the machine.
#pragma once

#include <string_view>

#include <dspp/base/config.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif
#endif

namespace dspp {

/// Cores, as counted by Linux; elsewhere those of the machine.
struct Cores {
  int own = 1;       ///< that this process may run on, or as below where OpenMP binds this thread to one of them
  int launched = 1;  ///< that all processes may run on which its parent started: mpirun gives each some of them
  double quota = 0;  ///< of processor time that its control group (version 2) may use in all, in cores; 0: any

  /// How many one of `ranks` may use that are threads of this process; at least 1.
  constexpr int of_thread_rank(int ranks) const { return within_quota(own / ranks, ranks); }
  /// The same of ranks that are processes of one machine, each with as many cores: other ones, as long as there are.
  constexpr int of_process_rank(int ranks) const {
    const int sharing = (ranks * own + launched - 1) / launched;
    return within_quota(own / (sharing > 1 ? sharing : 1), ranks);
  }

 private:
  constexpr int within_quota(int cores, int ranks) const {
    const double most = quota / ranks;
    if (quota > 0 && most < cores) cores = static_cast<int>(most);
    return cores > 1 ? cores : 1;
  }
};

/// Of this process, now.
Cores cores_of_this_process();

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// The least of the quotas that cpu.max has in `root` + `group` and the folders above it; 0: none. Source: Linux'
/// Documentation/admin-guide/cgroup-v2.rst
double cpu_quota(std::string_view root, std::string_view group);
/// Whether this thread may have the mask of one place of OpenMP's in place of the process's.
bool openmp_binds_threads();
}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE double cpu_quota(std::string_view root, std::string_view group) {
  double least = 0;
  for (;; group = group.substr(0, group.rfind('/'))) {
    std::ifstream file(std::string(root) + std::string(group) + "/cpu.max");
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0)
      if (const double cores = std::strtod(quota.c_str(), nullptr) / period; cores > 0)
        least = least > 0 ? std::min(least, cores) : cores;
    if (group.empty() || group == "/") return least;
  }
}

DSPP_INLINE bool openmp_binds_threads() {
  if (const char* text = std::getenv("OMP_PROC_BIND"))
    return std::string_view("fF").find(*text) == std::string_view::npos;
  return std::getenv("OMP_PLACES") || std::getenv("GOMP_CPU_AFFINITY") || std::getenv("KMP_AFFINITY");
}

#if defined(__linux__)
/// The cores in a process's affinity mask; 0: unknown.
DSPP_INLINE int cores_in_mask(int process) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return ::sched_getaffinity(process, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}
#endif

}  // namespace detail

DSPP_INLINE Cores cores_of_this_process() {
  Cores cores;
  cores.own = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
#if defined(__linux__)
  if (const int masked = detail::cores_in_mask(0); masked > 0) cores.own = masked;
  cores.launched = std::max(cores.own, detail::cores_in_mask(::getppid()));
  if (detail::openmp_binds_threads()) cores.own = cores.launched;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.rfind("0::", 0) == 0) cores.quota = detail::cpu_quota("/sys/fs/cgroup", line.substr(3));
#else
  cores.launched = cores.own;
#endif
  return cores;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
