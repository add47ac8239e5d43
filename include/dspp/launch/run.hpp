// SPDX-License-Identifier: Apache-2.0
/// Starts the ranks and gives each its World. The only place that queries the machine.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <dspp/base/config.hpp>

#if DSPP_HAS_OPENMP()
#include <omp.h>
#endif

#include <dspp/base/arithmetic.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/comm/last_resort.hpp>
#include <dspp/comm/threads/run_ranks.hpp>
#include <dspp/comm/threads/world.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/launch/ending.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/mpi_choice.hpp>
#include <dspp/launch/policy_facts.hpp>
#include <dspp/launch/run_mpi.hpp>
#include <dspp/launch/run_options.hpp>
#include <dspp/launch/run_tcp.hpp>
#include <dspp/launch/tcp_place.hpp>
#include <dspp/launch/world.hpp>

namespace dspp {

/// Runs `program(world)` on every rank and returns when all have ended. Ranks are threads of this process. Where a
/// launcher started several processes, this one is one of the ranks, with the same results bit for bit: under mpirun or
/// srun in a program that links dspp::mpi, and in any program if RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set,
/// by TCP (launch/tcp_place.hpp). In a program with dspp::mpi the variables of an MPI, and Slurm's, go first.
///
/// A rank that does not stop within a tenth of timeout_seconds after another failed, and at least half a second, ends
/// the process, or the job under mpirun, with the sentence of that failure. If that hangs too, on a pipe that nobody
/// reads or in MPI, the system ends the process by SIGKILL heartbeat_seconds later. Under a debugger raise both times.
///
/// Throws   what the first rank to fail threw, once, after all others have stopped; Error(usage) for several processes
///          that neither MPI nor TCP can connect
template <class P, class Program>
void run_ranks_of(const RunOptions& options, Program program);

/// The same for main(): returns 0, or the error's exit status after one sentence on stderr (2 for wrong usage or input,
/// else 1). Of MPI ranks only rank 0 prints, and all end with that status.
template <class P, class Program>
int run(const RunOptions& options, Program program);

/// The same with the options of read_run_options(argc, argv). The program reads the others itself.
template <class P, class Program>
int run(int argc, char** argv, Program program);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline void set_threads_of_this_rank([[maybe_unused]] int threads) {
#if DSPP_HAS_OPENMP()
  omp_set_num_threads(threads);  // otherwise each new thread starts with all cores
#endif
}

/// Runs the program as one rank of `groups` with its memory.
template <class P>
void run_rank(const RunOptions& options, int threads, const Mesh& mesh, int rank, const RankGroups& groups,
              FunctionRef<void(World<P>&)> program) {
  set_threads_of_this_rank(threads);
  DeviceRank<DeviceOf<P>> device(options.memory_limit_bytes, groups);
  World<P> world(mesh, rank, device.groups(groups), device.pool, options.seed, groups.node, device.host_group());
  program(world);
  if constexpr (requires { device.end(); }) device.end();
}

/// What starts ranks knows of a policy and its program.
struct RankProgram {
  Mesh (*mesh)(int ranks);
  Facts (*policy)();
  const char* transport;  ///< transport_of() the policy's device
  FunctionRef<void(int threads, const Mesh& mesh, int rank, const RankGroups& groups)> run;
};

/// `blame` names the rank to blame for the exception, if any.
inline void run_threads_of(const RunOptions& options, const RankProgram& program, Blame& blame) {
  ThreadOptions thread_options;
  thread_options.timeout_seconds = options.timeout_seconds;
  thread_options.heartbeat_seconds = options.heartbeat_seconds;
  thread_options.sum_order = options.sum_order;
  ThreadWorld threads(program.mesh(options.ranks), thread_options, options.ranks_per_node);
  const auto one_rank = [&](int rank) {
    program.run(threads_per_rank(options, options.ranks), threads.mesh(), rank, threads.groups(rank));
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

/// True if this process was an MPI rank whose ranks all ended: rank 0 then reports.
inline bool was_mpi_rank() {
#if DSPP_HAS_MPI()
  int over = 0;
  MPI_Finalized(&over);
  return over != 0;
#else
  return false;
#endif
}

/// Where collectives of the device's memory run, and how: the ranks must have both in common.
template <Device D>
constexpr const char* transport_of() {
  if (std::is_same_v<D, Cpu>) return "the Cpu's";
  return DSPP_HAS_NCCL() ? "NCCL between GPUs" : "through the host, of a GPU";
}

/// Where the ranks connect by TCP; empty if MPI connects them.
inline std::optional<TcpPlace> tcp_place_of(const Launch& launch) {
  if (DSPP_HAS_MPI() && launch.by != "RANK") return std::nullopt;
  return this_tcp_place(launch);
}

inline void run_launched(const RunOptions& options, const Launch& launch, const RankProgram& program, Blame& blame) {
  if (options.ranks != 1 && options.ranks != launch.size)
    fail(ErrorCode::usage, "dspp: run needs as many ranks as were started, but is asked for " +
                               std::to_string(options.ranks) + " and " + launch.by + " says rank " +
                               std::to_string(launch.rank) + " of " + std::to_string(launch.size) +
                               ". Leave RunOptions::ranks, or --ranks, out under mpirun.");
  if (options.ranks_per_node != 0)
    fail(ErrorCode::usage, "dspp: run needs the nodes that mpirun placed the ranks on, but is asked for " +
                               std::to_string(options.ranks_per_node) +
                               " ranks per node. Leave RunOptions::ranks_per_node, or --ranks-per-node, out.");
  const std::optional<TcpPlace> place = tcp_place_of(launch);
  if (!place && !DSPP_HAS_MPI())
    fail(ErrorCode::usage,
         "dspp: run needs a program built with MPI for the " + std::to_string(launch.size) + " ranks that " +
             launch.by +
             " names, but this one was built without. Link dspp::mpi, or set MASTER_ADDR and "
             "MASTER_PORT, or start it without mpirun" +
             (launch.by == "SLURM_PROCID" || launch.by == "RANK" ? " and with " + launch.by + " unset." : "."));
  if (place && options.sum_order != SumOrder::rank)
    fail(ErrorCode::usage,
         "dspp: run needs sum order rank for ranks that TCP connects, but got transport. Leave "
         "RunOptions::sum_order, or --sum-order, out.");
  const Mesh mesh = program.mesh(launch.size);
  const auto one_rank = [&](const RankGroups& groups) {
    program.run(threads_per_rank(options, launch.local_size), mesh, launch.rank, groups);
  };
  const Facts facts = Facts()
                          .add("build", DSPP_BUILD)
                          .add(program.policy(), "")
                          .add("seed", options.seed)
                          .add("sum order", name_of(options.sum_order))
                          .add("collectives", program.transport);
  if (place)
    return run_tcp_rank(mesh, *place, options.timeout_seconds, options.heartbeat_seconds, facts, one_rank, blame);
#if DSPP_HAS_MPI()
  run_mpi_rank(
      mesh, launch, {options.timeout_seconds, options.sum_order}, options.heartbeat_seconds, facts, one_rank,
      [&](const MpiFailure& failure, bool reports) {
        const Ending ending = ending_of(error_of(failure), failure.culprit);
        if (!failure.reported) report_final_error(reports ? Launch{} : launch, ending.sentence, !reports);
        return ending.status;
      },
      blame);
#endif
}

template <class P>
void run_world(const RunOptions& options, FunctionRef<void(World<P>&)> program, Blame& blame) {
  static_assert(!std::is_same_v<DeviceOf<P>, PaperOf<DeviceOf<P>>>,
                "dspp: run needs a policy on Cpu or Cuda. plan<Model>(...) is what runs on Meta.");
  check_arithmetic();
  const auto one_rank = [&](int threads, const Mesh& mesh, int rank, const RankGroups& groups) {
    run_rank<P>(options, threads, mesh, rank, groups, program);
  };
  const RankProgram of_any_policy{mesh_of<P>, policy_facts<P>, transport_of<DeviceOf<P>>(), one_rank};
  const Launch launch = this_launch();
  if (launch.size > 1) return run_launched(options, launch, of_any_policy, blame);
  run_threads_of(options, of_any_policy, blame);
}

template <class P>
int run_to_status(const RunOptions& options, FunctionRef<void(World<P>&)> program) {
  Ending ending;
  Blame blame;
  try {
    run_world<P>(options, program, blame);
    return 0;
  } catch (...) {
    ending = ending_of(std::current_exception(), blame.rank);
  }
  const LastResort at_the_latest(options.heartbeat_seconds + 2);  // others report after 2 s; stderr may block
  if (!blame.reported) report_final_error(launch_for_errors(), ending.sentence, was_mpi_rank());
  if (!blame.last_operations.empty()) write_to_stderr(blame.last_operations);
  return ending.status;
}

}  // namespace detail

template <class P, class Program>
void run_ranks_of(const RunOptions& options, Program program) {
  detail::Blame blame;
  detail::run_world<P>(
      options, [&](World<P>& world) { program(world); }, blame);
}

template <class P, class Program>
int run(const RunOptions& options, Program program) {
  return detail::run_to_status<P>(options, [&](World<P>& world) { program(world); });
}

template <class P, class Program>
int run(int argc, char** argv, Program program) {
  RunOptions options;
  try {
    options = read_run_options(argc, argv);
  } catch (const Error& error) {
    report_final_error(detail::launch_for_errors(), error.what());
    return 2;
  }
  return run<P>(options, std::move(program));
}

}  // namespace dspp
