// SPDX-License-Identifier: Apache-2.0
/// Which rank of how many this process is, as mpirun or srun says in its environment.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <dspp/base/error.hpp>

namespace dspp {

/// A process started alone is rank 0 of 1, and its ranks are threads.
struct Launch {
  int rank = 0;
  int size = 1;
  int local_size = 1;  ///< processes on this machine
  std::string by;      ///< the variable that said so; empty if none did

  bool is_first() const { return rank == 0; }
};

/// The launch that `variable(name)` tells of: a text, or null where there is none. Known are the variables of Open MPI,
/// of PMI (MPICH, Intel MPI) and of Slurm; a rank without a size says nothing.
///
/// Throws   Error(usage) naming both where two disagree, and for one that is not a number
template <class Variable>
Launch read_launch(Variable variable);

/// The launch of this process. Reads the environment: for run(), and for a main() that speaks before it.
inline Launch this_launch() {
  return read_launch([](const char* name) { return std::getenv(name); });
}

/// The last sentence of a process that cannot go on. Rank 0 says it at once; another rank only if it has not been ended
/// two seconds later, since rank 0 nearly always says the same and the launcher then ends all.
inline void speak_last(const Launch& launch, const std::string& sentence, bool rank_0_speaks = false) {
  if (!launch.is_first()) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    if (rank_0_speaks) return;
  }
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::fflush(stderr);
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline int launch_number(const char* name, const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
    fail(ErrorCode::usage, std::string("dspp: run needs a number in the variable ") + name + ", but it holds '" + text +
                               "'. Unset it, or start the program with mpirun.");
  return std::stoi(text);
}

}  // namespace detail

template <class Variable>
Launch read_launch(Variable variable) {
  constexpr const char* known[][3] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"},
  };
  Launch found;
  for (const auto& [rank_name, size_name, local_name] : known) {
    const char* rank = variable(rank_name);
    const char* size = variable(size_name);
    const char* local = variable(local_name);
    if (rank == nullptr || size == nullptr) continue;
    Launch next{detail::launch_number(rank_name, rank), detail::launch_number(size_name, size), 1, rank_name};
    next.local_size = local == nullptr ? next.size : detail::launch_number(local_name, local);
    const auto says = [](const Launch& l) {
      return l.by + " says rank " + std::to_string(l.rank) + " of " + std::to_string(l.size);
    };
    if (next.rank >= next.size || next.local_size < 1)
      fail(ErrorCode::usage, "dspp: run needs a rank below the number of ranks, but " + says(next) +
                                 ". Unset what an earlier job left, or start the program with mpirun.");
    if (!found.by.empty() && (found.rank != next.rank || found.size != next.size))
      fail(ErrorCode::usage, "dspp: run needs one answer to which rank this is, but " + says(found) + " and " +
                                 says(next) + ". Unset the variables of the launcher that did not start it.");
    if (found.by.empty()) found = next;
  }
  return found;
}

}  // namespace dspp
