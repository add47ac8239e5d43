// SPDX-License-Identifier: Apache-2.0
/// The options of run(), and those of them that a command line gives.
#pragma once

#include <cstdint>

#include <dspp/base/types.hpp>
#include <dspp/comm/async_progress.hpp>
#include <dspp/comm/sum_order.hpp>
#include <dspp/launch/launch.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>

#include <dspp/base/cores.hpp>
#include <dspp/base/error.hpp>
#endif

namespace dspp {

struct RunOptions {
  int ranks = 1;             ///< a multiple of the policy's Cp times Tp; under mpirun as many as it started, or 1
  int threads_per_rank = 0;  ///< OpenMP threads of one rank; 0: OMP_NUM_THREADS, else its share of the cores (Cores)
  std::uint64_t seed = 0;
  Size memory_limit_bytes = 0;    ///< of each rank's Pool; 0: none
  double timeout_seconds = 600;   ///< after which a waiting rank gives up, and all ranks stop
  double heartbeat_seconds = 10;  ///< a process that must end but hangs is killed by the system that much later
  int ranks_per_node = 0;         ///< of thread ranks on a virtual node (World::node()); 0: all. MPI detects nodes
  SumOrder sum_order = SumOrder::rank;  ///< transport: MPI's own reductions; threads then add in ring order
  AsyncProgress async_progress = AsyncProgress::automatic;  ///< a progress thread for each rank on the Cpu
};

/// Those of a command line: `--ranks N`, `--seed N`, `--timeout SECONDS`, `--ranks-per-node N`,
/// `--sum-order rank|transport` and `--async-progress auto|on|off`, also written `--ranks=N`. A `--local_rank=N` that a
/// launcher added is checked (launch/launch.hpp). Other words are left to the program.
///
/// Throws   Error(usage)
RunOptions read_run_options(int argc, char** argv);

/// Whether each rank on the Cpu gets a progress thread of RunOptions::async_progress; of MPI if it is, as dspp
/// initialises it, for several threads.
bool has_progress_thread(const RunOptions& options, const Launch& launch);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The OpenMP threads of one rank, which has `cores`. OMP_NUM_THREADS counts, as for OpenMP's own programs: its first
/// number.
int threads_per_rank(const RunOptions& options, int cores);

/// The cores of a rank of this process, which a launcher started or whose ranks are threads.
int cores_of_rank(const RunOptions& options, const Launch& launch);

/// Whether a rank on the Cpu, one of `ranks`, that has `cores` gets a progress thread.
bool has_progress_thread(const RunOptions& options, int ranks, int cores);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE int threads_per_rank(const RunOptions& options, int cores) {
  if (options.threads_per_rank > 0) return options.threads_per_rank;
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {  // OpenMP itself warns of what is no number
    int number = 0;
    std::from_chars(text + std::strspn(text, " \t"), text + std::strlen(text), number);
    if (number > 0) return number;
  }
  return cores;
}

DSPP_INLINE int cores_of_rank(const RunOptions& options, const Launch& launch) {
  const Cores cores = cores_of_this_process();
  return launch.size > 1 ? cores.of_process_rank(launch.local_size) : cores.of_thread_rank(options.ranks);
}

DSPP_INLINE bool has_progress_thread(const RunOptions& options, int ranks, int cores) {
  if (ranks == 1 || options.async_progress == AsyncProgress::off) return false;
  if (options.async_progress == AsyncProgress::on) return true;
  return threads_per_rank(options, cores) < cores && !openmp_binds_threads();  // it would share the rank's one core
}

/// The value of `--name text` or `--name=text`; the last one counts. Empty if it is absent.
DSPP_INLINE std::optional<std::string> text_option(int argc, char** argv, const std::string& name) {
  std::optional<std::string> text;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == name) text = i + 1 < argc ? argv[++i] : "";
    if (word.rfind(name + "=", 0) == 0) text = word.substr(name.size() + 1);
  }
  return text;
}

/// A whole number of at most `largest`, or the default.
DSPP_INLINE std::uint64_t number_option(int argc, char** argv, const std::string& name, std::uint64_t otherwise,
                                        std::uint64_t largest) {
  const std::optional<std::string> text = text_option(argc, argv, name);
  if (!text) return otherwise;
  if (text->empty() || text->size() > 18 || text->find_first_not_of("0123456789") != std::string::npos)
    fail(ErrorCode::usage, "dspp: " + name + " needs a number, but got '" + *text + "'. Write " + name + " 2.");
  if (std::stoull(*text) > largest)
    fail(ErrorCode::usage, "dspp: " + name + " needs a number of at most " + std::to_string(largest) + ", but got " +
                               *text + ". Write " + name + " 2.");
  return std::stoull(*text);
}

/// A number of seconds above 0, or the default.
DSPP_INLINE double seconds_option(int argc, char** argv, const std::string& name, double otherwise) {
  const std::optional<std::string> text = text_option(argc, argv, name);
  if (!text) return otherwise;
  double seconds = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, seconds);
  if (error != std::errc{} || stopped != end || !(seconds > 0 && seconds <= 1e9))
    fail(ErrorCode::usage,
         "dspp: " + name + " needs a number of seconds above 0, but got '" + *text + "'. Write " + name + " 600.");
  return seconds;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool has_progress_thread(const RunOptions& options, const Launch& launch) {
  const int ranks = launch.size > 1 ? launch.size : options.ranks;
  return detail::has_progress_thread(options, ranks, detail::cores_of_rank(options, launch));
}

DSPP_INLINE RunOptions read_run_options(int argc, char** argv) {
  RunOptions options;
  options.ranks = static_cast<int>(detail::number_option(argc, argv, "--ranks", 1, 1024));
  options.seed = detail::number_option(argc, argv, "--seed", 0, 999'999'999'999'999'999);
  options.timeout_seconds = detail::seconds_option(argc, argv, "--timeout", options.timeout_seconds);
  options.ranks_per_node = static_cast<int>(detail::number_option(argc, argv, "--ranks-per-node", 0, 1024));
  if (const auto text = detail::text_option(argc, argv, "--sum-order"))
    options.sum_order = sum_order_named("--sum-order", *text);
  if (const auto text = detail::text_option(argc, argv, "--async-progress"))
    options.async_progress = async_progress_named("--async-progress", *text);
  for (const char* name : {"--local_rank", "--local-rank"})
    if (const auto text = detail::text_option(argc, argv, name)) check_local_rank(this_launch(), *text);
  return options;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
