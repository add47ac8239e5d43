// SPDX-License-Identifier: Apache-2.0
/// The ranks of a program of any policy: as threads of this process, or this process as one rank that TCP connects.
#pragma once

#include <optional>

#include <dspp/base/facts.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/comm/rank_groups.hpp>
#include <dspp/launch/ending.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/run_options.hpp>
#include <dspp/mesh/mesh.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <exception>
#include <string>

#include <dspp/base/otherwise.hpp>
#include <dspp/comm/last_resort.hpp>
#include <dspp/comm/threads/run_ranks.hpp>
#include <dspp/comm/threads/world.hpp>
#include <dspp/launch/run_tcp.hpp>
#include <dspp/launch/tcp_place.hpp>
#endif

namespace dspp::detail {

/// What starts ranks knows of a policy and its program.
struct RankProgram {
  Mesh (*mesh)(int ranks);
  Facts (*policy)();
  const char* build;      ///< DSPP_BUILD of the program
  const char* transport;  ///< transport_of() the policy's device
  bool is_on_host;        ///< the policy's device is the Cpu
  FunctionRef<void(int threads, const Mesh& mesh, int rank, const RankGroups& groups)> run;
};

/// What the processes of a launch must have in common.
Facts facts_of(const RunOptions& options, const RankProgram& program);

/// Runs all ranks as threads. `blame` names the rank to blame for the exception, if any.
void run_threads_of(const RunOptions& options, const RankProgram& program, Blame& blame);

/// Throws   Error(usage) for AsyncProgress::on of a policy on a device, which moves its data by itself
void check_async_progress(const RunOptions& options, bool is_on_host);

/// Throws   Error(usage) for options that the launch contradicts
void check_launch(const RunOptions& options, const Launch& launch);

/// Runs this process's rank if its variables name the place where ranks meet by TCP; else returns false.
bool run_by_tcp(const RunOptions& options, const Launch& launch, const RankProgram& program, Blame& blame);

[[noreturn]] void fail_without_mpi(const Launch& launch);

/// The exit status of run(blame), whose exception is reported. `was_mpi_rank()` says whether rank 0 reports.
int status_of(const RunOptions& options, FunctionRef<void(Blame&)> run, bool (*was_mpi_rank)());

/// The options of a command line; none if they are wrong, which is reported.
std::optional<RunOptions> options_or_report(int argc, char** argv);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Facts facts_of(const RunOptions& options, const RankProgram& program) {
  return Facts()
      .add("build", program.build)
      .add(program.policy(), "")
      .add("seed", options.seed)
      .add("sum order", name_of(options.sum_order))
      .add("collectives", program.transport);
}

DSPP_INLINE void run_threads_of(const RunOptions& options, const RankProgram& program, Blame& blame) {
  ThreadOptions thread_options;
  thread_options.timeout_seconds = options.timeout_seconds;
  thread_options.heartbeat_seconds = options.heartbeat_seconds;
  thread_options.sum_order = options.sum_order;
  ThreadWorld threads(program.mesh(options.ranks), thread_options, options.ranks_per_node);
  ThreadGroup all = threads.group();
  const auto one_rank = [&](int rank) {
    const int cores = cores_of_rank(options, Launch{});
    const Otherwise on_exit([&] { all.stop_progress(rank); });
    if (program.is_on_host && has_progress_thread(options, options.ranks, cores)) all.start_progress(rank);
    program.run(threads_per_rank(options, cores), threads.mesh(), rank, threads.groups(rank));
  };
  try {
    run_ranks(threads.group(), one_rank, [](const std::exception_ptr& error, int rank) {
      const Ending ending = ending_of(error, rank);
      write_to_stderr(ending.sentence);
      return ending.status;
    });
  } catch (...) {
    blame.rank = threads.group().culprit();
    blame.last_operations = threads.group().last_operations();
    throw;
  }
}

DSPP_INLINE void check_async_progress(const RunOptions& options, bool is_on_host) {
  if (!is_on_host && options.async_progress == AsyncProgress::on)
    fail(ErrorCode::usage,
         "dspp: run needs a policy on the Cpu for AsyncProgress::on, but this one is on a device, whose streams move "
         "data by themselves. Leave RunOptions::async_progress, or --async-progress, out.");
}

DSPP_INLINE void check_launch(const RunOptions& options, const Launch& launch) {
  if (options.ranks != 1 && options.ranks != launch.size)
    fail(ErrorCode::usage, "dspp: run needs as many ranks as were started, but is asked for " +
                               std::to_string(options.ranks) + " and " + launch.by + " says rank " +
                               std::to_string(launch.rank) + " of " + std::to_string(launch.size) +
                               ". Leave RunOptions::ranks, or --ranks, out under mpirun.");
  if (options.ranks_per_node != 0)
    fail(ErrorCode::usage, "dspp: run needs the nodes that mpirun placed the ranks on, but is asked for " +
                               std::to_string(options.ranks_per_node) +
                               " ranks per node. Leave RunOptions::ranks_per_node, or --ranks-per-node, out.");
}

DSPP_INLINE bool run_by_tcp(const RunOptions& options, const Launch& launch, const RankProgram& program, Blame& blame) {
  const std::optional<TcpPlace> place = this_tcp_place(launch);
  if (!place) return false;
  if (options.sum_order != SumOrder::rank)
    fail(ErrorCode::usage,
         "dspp: run needs sum order rank for ranks that TCP connects, but got transport. Leave "
         "RunOptions::sum_order, or --sum-order, out.");
  const Mesh mesh = program.mesh(launch.size);
  const int cores = cores_of_rank(options, launch);
  const auto one_rank = [&](const RankGroups& groups) {
    program.run(threads_per_rank(options, cores), mesh, launch.rank, groups);
  };
  run_tcp_rank(mesh, *place, options, program.is_on_host && has_progress_thread(options, launch.size, cores),
               facts_of(options, program), one_rank, blame);
  return true;
}

DSPP_INLINE void fail_without_mpi(const Launch& launch) {
  fail(ErrorCode::usage,
       "dspp: run needs a program built with MPI for the " + std::to_string(launch.size) + " ranks that " + launch.by +
           " names, but this one was built without. Link dspp::mpi, or set MASTER_ADDR and "
           "MASTER_PORT, or start it without mpirun" +
           (launch.by == "SLURM_PROCID" || launch.by == "RANK" ? " and with " + launch.by + " unset." : "."));
}

DSPP_INLINE int status_of(const RunOptions& options, FunctionRef<void(Blame&)> run, bool (*was_mpi_rank)()) {
  Ending ending;
  Blame blame;
  try {
    run(blame);
    return 0;
  } catch (...) {
    ending = ending_of(std::current_exception(), blame.rank);
  }
  const LastResort at_the_latest(options.heartbeat_seconds + 2);  // others report after 2 s; stderr may block
  if (!blame.reported) report_final_error(launch_for_errors(), ending.sentence, was_mpi_rank());
  if (!blame.last_operations.empty()) write_to_stderr(blame.last_operations);
  return ending.status;
}

DSPP_INLINE std::optional<RunOptions> options_or_report(int argc, char** argv) {
  try {
    return read_run_options(argc, argv);
  } catch (const Error& error) {
    report_final_error(launch_for_errors(), error.what());
    return std::nullopt;
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
