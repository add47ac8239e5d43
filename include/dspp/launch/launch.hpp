// SPDX-License-Identifier: Apache-2.0
/// This process's rank and number of ranks, read from the launcher's environment variables.
#pragma once

#include <string>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/function_ref.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#endif

namespace dspp {

/// A process started alone is rank 0 of 1, and its ranks are threads.
struct Launch {
  int rank = 0;
  int size = 1;
  int local_size = 1;  ///< processes on this machine
  int local_rank = 0;  ///< among them; -1: not given by the launcher
  std::string by;      ///< the variable that gave the rank; empty if none

  bool is_first() const { return rank == 0; }
};

/// Reads the launch from `variable(name)`, which returns a text or null. Known are the variables of Open MPI, of PMI
/// (MPICH, Intel MPI), of Slurm, and RANK, WORLD_SIZE of torchrun and deepspeed; a rank without a size is ignored.
///
/// Throws   Error(usage) that lists all variables if two disagree, and for a value that is not a number
Launch read_launch(FunctionRef<const char*(const char*)> variable);

/// Checks the N of --local_rank=N, which torchrun and deepspeed add to a program's options. dspp does not need it; it
/// must only agree with the launch.
///
/// Throws   Error(usage) if it is not a number, not below the ranks of this machine, or differs from the variables
void check_local_rank(const Launch& launch, const std::string& text);

/// The launch of this process. Reads the environment: for run(), and for a main() that reports errors before it.
Launch this_launch();

/// Prints the last sentence of a process that cannot continue. Rank 0 prints at once; another rank only if it still
/// runs two seconds later, since rank 0 nearly always prints the same and the launcher then ends all.
void report_final_error(const Launch& launch, const std::string& sentence, bool rank_0_reports = false);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

int launch_number(const char* name, const std::string& text);

/// "RANK says rank 1 of 2", and "with local rank 1" if there is one.
std::string describe_launch(const Launch& launch, bool with_local_rank = false);

void require_one_answer(const std::vector<Launch>& launches);

}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE int launch_number(const char* name, const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
    fail(ErrorCode::usage, std::string("dspp: run needs a number in the variable ") + name + ", but it holds '" + text +
                               "'. Unset it, or start the program with mpirun.");
  return std::stoi(text);
}

DSPP_INLINE std::string describe_launch(const Launch& launch, bool with_local_rank) {
  return launch.by + " says rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.size) +
         (with_local_rank && launch.local_rank >= 0 ? " with local rank " + std::to_string(launch.local_rank) : "");
}

DSPP_INLINE void require_one_answer(const std::vector<Launch>& launches) {
  bool differ = false, local_differ = false;
  int local_rank = -1;
  for (const Launch& launch : launches) {
    differ = differ || launch.rank != launches[0].rank || launch.size != launches[0].size;
    local_differ = local_differ || (local_rank >= 0 && launch.local_rank >= 0 && launch.local_rank != local_rank);
    if (launch.local_rank >= 0) local_rank = launch.local_rank;
  }
  if (!differ && !local_differ) return;
  std::string all;
  for (const Launch& launch : launches)
    all += (all.empty() ? "" : &launch == &launches.back() ? " and " : ", ") + describe_launch(launch, !differ);
  fail(ErrorCode::usage, "dspp: run needs one answer to which rank this is, but " + all +
                             ". Unset the variables of the launcher that did not start it.");
}

}  // namespace detail

DSPP_INLINE Launch read_launch(FunctionRef<const char*(const char*)> variable) {
  constexpr const char* known[][4] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"},
      {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"},
  };
  std::vector<Launch> launches;
  for (const auto& [rank_name, size_name, local_size_name, local_rank_name] : known) {
    const auto number = [&](const char* name, int otherwise) {
      const char* text = variable(name);
      return text == nullptr ? otherwise : detail::launch_number(name, text);
    };
    if (variable(rank_name) == nullptr || variable(size_name) == nullptr) continue;
    Launch next{.rank = number(rank_name, 0), .size = number(size_name, 1), .by = rank_name};
    next.local_size = number(local_size_name, next.size);
    next.local_rank = number(local_rank_name, -1);
    if (next.rank >= next.size || next.local_size < 1)
      fail(ErrorCode::usage, "dspp: run needs a rank below the number of ranks, but " + detail::describe_launch(next) +
                                 ". Unset what an earlier job left, or start the program with mpirun.");
    const int most = next.by == "SLURM_PROCID" ? next.size : next.local_size;  // Slurm's is what sbatch requested
    if (next.local_rank >= most)
      fail(ErrorCode::usage, "dspp: run needs a local rank below the " + std::to_string(most) +
                                 " ranks of this machine, but " + detail::describe_launch(next, true) +
                                 ". Unset what an earlier job left, or start the program with mpirun.");
    launches.push_back(std::move(next));
  }
  // A launch of a single process, as in a container, does not contradict a launcher that starts several in it.
  if (std::any_of(launches.begin(), launches.end(), [](const Launch& one) { return one.size > 1; }))
    std::erase_if(launches, [](const Launch& one) { return one.size == 1; });
  if (launches.empty()) return {};
  detail::require_one_answer(launches);
  Launch found = launches[0];
  for (const Launch& other : launches)
    if (found.local_rank < 0) found.local_rank = other.local_rank;
  return found;
}

DSPP_INLINE Launch this_launch() {
  return read_launch([](const char* name) { return std::getenv(name); });
}

DSPP_INLINE void report_final_error(const Launch& launch, const std::string& sentence, bool rank_0_reports) {
  if (!launch.is_first()) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    if (rank_0_reports) return;
  }
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::fflush(stderr);
}

DSPP_INLINE void check_local_rank(const Launch& launch, const std::string& text) {
  const bool known = launch.local_rank >= 0;
  const bool number = !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string::npos;
  if (number && (known ? std::stoi(text) == launch.local_rank : std::stoi(text) < launch.local_size)) return;
  fail(ErrorCode::usage,
       "dspp: --local_rank needs to be the number of this rank on its machine, " +
           (known                    ? std::to_string(launch.local_rank)
            : launch.local_size == 1 ? "0"
                                     : "from 0 to " + std::to_string(launch.local_size - 1)) +
           (launch.by.empty() ? " without a launcher" : " as the launcher of " + launch.by + " says") + ", but got '" +
           text + "'. Leave it to the launcher, or out.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
