// SPDX-License-Identifier: Apache-2.0
/// Starts the ranks and gives each its World. The only place that looks at the machine.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <dspp/comm/run_ranks.hpp>
#include <dspp/comm/thread_world.hpp>
#include <dspp/engine/world.hpp>

namespace dspp {

struct RunOptions {
  int ranks = 1;             ///< a multiple of the policy's Tp degree
  int threads_per_rank = 0;  ///< OpenMP threads of one rank; 0: the machine's cores shared out evenly
  std::uint64_t seed = 0;
  Size memory_limit_bytes = 0;  ///< of each rank's Pool; 0: none
  double timeout_seconds = 600;
};

/// Runs `program(world)` on every rank, here as threads of this process, and returns when all have ended.
///
/// Throws   what the first rank to fail threw, once, after all others were stopped
template <class P, class Program>
void run_ranks_of(const RunOptions& options, Program program);

/// The same for main(): returns 0, or the error's exit status after one sentence on stderr (2 for bad use or input,
/// else 1).
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

inline int threads_per_rank(const RunOptions& options) {
  if (options.threads_per_rank > 0) return options.threads_per_rank;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores > options.ranks ? cores / options.ranks : 1;
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

}  // namespace detail

template <class P, class Program>
void run_ranks_of(const RunOptions& options, Program program) {
  using D = DeviceOf<P>;
  static_assert(std::is_same_v<D, Cpu>, "dspp: run needs a policy on the Cpu. plan<Model>(...) is what runs on Meta.");
  ThreadOptions thread_options;
  thread_options.timeout_seconds = options.timeout_seconds;
  ThreadWorld threads(mesh_of<P>(options.ranks), thread_options);
  run_ranks(threads.group(), [&](int rank) {
    detail::set_threads_of_this_rank(detail::threads_per_rank(options));
    Pool pool(options.memory_limit_bytes);
    const RankGroups& groups = threads.groups(rank);
    World<P> world(threads.mesh(), rank, Groups<D>{groups.world, groups[Axis::Data], groups[Axis::Tp]}, pool,
                   options.seed);
    program(world);
  });
}

template <class P, class Program>
int run(const RunOptions& options, Program program) {
  try {
    run_ranks_of<P>(options, std::move(program));
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return detail::exit_status(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dspp: a rank stopped with an error of its own: %s\n", error.what());
    return 1;
  } catch (...) {
    std::fprintf(stderr, "dspp: a rank stopped with an exception of a type that says nothing.\n");
    return 1;
  }
}

template <class P, class Program>
int run(int argc, char** argv, Program program) {
  RunOptions options;
  try {
    options.ranks = static_cast<int>(detail::number_option(argc, argv, "--ranks", 1, 1024));
    options.seed = detail::number_option(argc, argv, "--seed", 0, 999'999'999'999'999'999);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return run<P>(options, std::move(program));
}

}  // namespace dspp
