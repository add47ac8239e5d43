// SPDX-License-Identifier: Apache-2.0
/// Starts the ranks and gives each its World. The only place that looks at the machine.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <dspp/comm/run_ranks.hpp>
#include <dspp/comm/thread_world.hpp>
#include <dspp/engine/engine_facts.hpp>
#include <dspp/engine/launch.hpp>
#include <dspp/engine/run_mpi.hpp>
#include <dspp/engine/world.hpp>

namespace dspp {

struct RunOptions {
  int ranks = 1;             ///< a multiple of the policy's Cp times Tp; under mpirun as many as it started, or 1
  int threads_per_rank = 0;  ///< OpenMP threads of one rank; 0: the machine's cores shared out evenly
  std::uint64_t seed = 0;
  Size memory_limit_bytes = 0;  ///< of each rank's Pool; 0: none
  double timeout_seconds = 600;
};

/// Runs `program(world)` on every rank and returns when all have ended. Ranks are threads of this process; under mpirun
/// or srun, in a program that links dspp::mpi, this process is one of the ranks, with the same results bit for bit.
///
/// Throws   what the first rank to fail threw, once, after all others were stopped; Error(usage) under mpirun where the
///          program was built without dspp::mpi
template <class P, class Program>
void run_ranks_of(const RunOptions& options, Program program);

/// The same for main(): returns 0, or the error's exit status after one sentence on stderr (2 for bad use or input,
/// else 1). Of MPI ranks only rank 0 speaks, and all end with that status.
template <class P, class Program>
int run(const RunOptions& options, Program program);

/// The same with `--ranks N` and `--seed N` from the command line; the program reads the other options itself.
template <class P, class Program>
int run(int argc, char** argv, Program program);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline void set_threads_of_this_rank([[maybe_unused]] int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);  // each new thread starts with all cores otherwise
#endif
}

/// `ranks` of them share this machine's cores, or those that the launcher gave this process.
inline int threads_per_rank(const RunOptions& options, int ranks) {
  if (options.threads_per_rank > 0) return options.threads_per_rank;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores > ranks ? cores / ranks : 1;
}

inline int exit_status(const Error& error) {
  switch (error.code()) {
    case ErrorCode::usage:
    case ErrorCode::placement:
    case ErrorCode::shape:
    case ErrorCode::file: return 2;
    default: return 1;
  }
}

/// The number after `--name`, at most `largest`, or the default.
inline std::uint64_t number_option(int argc, char** argv, const std::string& name, std::uint64_t otherwise,
                                   std::uint64_t largest) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i] != name) continue;
    const std::string text = i + 1 < argc ? argv[i + 1] : "";
    if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
      fail(ErrorCode::usage, "dspp: " + name + " needs a number, but got '" + text + "'. Write " + name + " 2.");
    if (std::stoull(text) > largest)
      fail(ErrorCode::usage, "dspp: " + name + " needs a number of at most " + std::to_string(largest) + ", but got " +
                                 text + ". Write " + name + " 2.");
    return std::stoull(text);
  }
  return otherwise;
}

/// The launch, or that of a process alone where its variables disagree, which is then the error.
inline Launch launch_to_speak_for() {
  try {
    return this_launch();
  } catch (const Error&) {
    return {};
  }
}

/// What is said of an error, and the exit status.
struct Ending {
  std::string sentence;
  int status = 1;
};

inline Ending ending_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return {own->what(), exit_status(*own)};
  return {std::string("dspp: a rank stopped with an error of its own: ") + error.what(), 1};
}

/// One rank of `groups` and its memory, through the program.
template <class P, class Program>
void run_rank(const RunOptions& options, int threads, const Mesh& mesh, int rank, const RankGroups& groups,
              Program& program) {
  set_threads_of_this_rank(threads);
  Pool pool(options.memory_limit_bytes);
  World<P> world(mesh, rank, Groups<DeviceOf<P>>{groups.world, groups.replicas, groups[Axis::Cp], groups[Axis::Tp]},
                 pool, options.seed);
  program(world);
}

template <class P, class Program>
void run_threads_of(const RunOptions& options, Program& program) {
  ThreadOptions thread_options;
  thread_options.timeout_seconds = options.timeout_seconds;
  ThreadWorld threads(mesh_of<P>(options.ranks), thread_options);
  run_ranks(threads.group(), [&](int rank) {
    run_rank<P>(options, threads_per_rank(options, options.ranks), threads.mesh(), rank, threads.groups(rank), program);
  });
}

/// Whether this process has been a rank of MPI whose ranks all ended: rank 0 then speaks.
inline bool was_mpi_rank() {
#ifdef DSPP_WITH_MPI
  int over = 0;
  MPI_Finalized(&over);
  return over != 0;
#else
  return false;
#endif
}

template <class P, class Program>
void run_launched(const RunOptions& options, const Launch& launch, [[maybe_unused]] Program& program) {
  if (options.ranks != 1 && options.ranks != launch.size)
    fail(ErrorCode::usage, "dspp: run needs as many ranks as were started, but is asked for " +
                               std::to_string(options.ranks) + " and " + launch.by + " says rank " +
                               std::to_string(launch.rank) + " of " + std::to_string(launch.size) +
                               ". Leave RunOptions::ranks, or --ranks, out under mpirun.");
#ifdef DSPP_WITH_MPI
  const Mesh mesh = mesh_of<P>(launch.size);
  const auto one_rank = [&](const RankGroups& groups) {
    run_rank<P>(options, threads_per_rank(options, launch.local_size), mesh, launch.rank, groups, program);
  };
  const Facts facts = policy_facts<P>().add("seed", options.seed);
  run_mpi_rank(mesh, launch, options.timeout_seconds, facts, one_rank, [&](const MpiFailure& failure, bool speaks) {
    try {
      rethrow_of(failure);
    } catch (const std::exception& error) {
      const Ending ending = ending_of(error);
      speak_last(speaks ? Launch{} : launch, ending.sentence, !speaks);
      return ending.status;
    }
  });
#else
  fail(ErrorCode::usage, "dspp: run needs a program built with MPI for the " + std::to_string(launch.size) +
                             " ranks that " + launch.by +
                             " tells of, but this one was built without. Link dspp::mpi, or start it without mpirun" +
                             (launch.by == "SLURM_PROCID" ? " and with SLURM_PROCID unset." : "."));
#endif
}

}  // namespace detail

template <class P, class Program>
void run_ranks_of(const RunOptions& options, Program program) {
  static_assert(std::is_same_v<DeviceOf<P>, Cpu>,
                "dspp: run needs a policy on the Cpu. plan<Model>(...) is what runs on Meta.");
  const Launch launch = this_launch();
  if (launch.size > 1) return detail::run_launched<P>(options, launch, program);
  detail::run_threads_of<P>(options, program);
}

template <class P, class Program>
int run(const RunOptions& options, Program program) {
  detail::Ending ending;
  try {
    run_ranks_of<P>(options, std::move(program));
    return 0;
  } catch (const std::exception& error) {
    ending = detail::ending_of(error);
  } catch (...) {
    ending.sentence = "dspp: a rank stopped with an exception of a type that says nothing.";
  }
  speak_last(detail::launch_to_speak_for(), ending.sentence, detail::was_mpi_rank());
  return ending.status;
}

template <class P, class Program>
int run(int argc, char** argv, Program program) {
  RunOptions options;
  try {
    options.ranks = static_cast<int>(detail::number_option(argc, argv, "--ranks", 1, 1024));
    options.seed = detail::number_option(argc, argv, "--seed", 0, 999'999'999'999'999'999);
  } catch (const Error& error) {
    speak_last(detail::launch_to_speak_for(), error.what());
    return 2;
  }
  return run<P>(options, std::move(program));
}

}  // namespace dspp
