// SPDX-License-Identifier: Apache-2.0
/// Starts the ranks and gives each its World. The only place that queries the machine.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <dspp/base/config.hpp>

#if DSPP_HAS_OPENMP()
#include <omp.h>
#endif

#include <dspp/base/arithmetic.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/launch/mpi_choice.hpp>
#include <dspp/launch/policy_facts.hpp>
#include <dspp/launch/rank_program.hpp>
#include <dspp/launch/run_mpi.hpp>
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

inline void run_launched(const RunOptions& options, const Launch& launch, const RankProgram& program, Blame& blame) {
  check_launch(options, launch);
#if DSPP_HAS_MPI()
  if (launch.by == "RANK" && run_by_tcp(options, launch, program, blame)) return;
  const Mesh mesh = program.mesh(launch.size);
  RunOptions asked = options;
  if (!program.is_on_host) asked.async_progress = AsyncProgress::off;
  run_mpi_rank(
      mesh, launch, asked, facts_of(options, program),
      [&](const RankGroups& groups) {
        program.run(threads_per_rank(options, cores_of_rank(options, launch)), mesh, launch.rank, groups);
      },
      [&](const MpiFailure& failure, bool reports) {
        const Ending ending = ending_of(error_of(failure), failure.culprit);
        if (!failure.reported) report_final_error(reports ? Launch{} : launch, ending.sentence, !reports);
        return ending.status;
      },
      blame);
#else
  if (!run_by_tcp(options, launch, program, blame)) fail_without_mpi(launch);
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
  const RankProgram of_any_policy{
      mesh_of<P>, policy_facts<P>, DSPP_BUILD, transport_of<DeviceOf<P>>(), std::is_same_v<DeviceOf<P>, Cpu>, one_rank};
  check_async_progress(options, of_any_policy.is_on_host);
  const Launch launch = this_launch();
  if (launch.size > 1) return run_launched(options, launch, of_any_policy, blame);
  run_threads_of(options, of_any_policy, blame);
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
  const auto on_ranks = [&](detail::Blame& blame) {
    detail::run_world<P>(
        options, [&](World<P>& world) { program(world); }, blame);
  };
  return detail::status_of(options, on_ranks, detail::was_mpi_rank);
}

template <class P, class Program>
int run(int argc, char** argv, Program program) {
  const std::optional<RunOptions> options = detail::options_or_report(argc, argv);
  return options ? run<P>(*options, std::move(program)) : 2;
}

}  // namespace dspp
