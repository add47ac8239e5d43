// SPDX-License-Identifier: Apache-2.0
/// This process as one rank of a world of MPI ranks: what run() does under mpirun.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/function_ref.hpp>
#include <dspp/comm/last_resort.hpp>
#include <dspp/comm/mpi/neighbour.hpp>
#include <dspp/comm/mpi/world.hpp>
#include <dspp/comm/same_facts.hpp>
#include <dspp/comm/threads/run_ranks.hpp>
#include <dspp/launch/ending.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/meeting_watch.hpp>
#include <dspp/launch/run_options.hpp>
#include <dspp/launch/world.hpp>

namespace dspp::detail {

/// Throws   Error(usage), on every rank, if MPI's rank or size differs from that of the launcher's variables
inline void check_mpi_launch(const Launch& launch) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int own[] = {launch.rank, launch.size};
  std::vector<int> all(2 * static_cast<std::size_t>(size));
  MPI_Allgather(own, 2, MPI_INT, all.data(), 2, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) {
    const auto at = 2 * static_cast<std::size_t>(r);
    if (all[at] == r && all[at + 1] == size) continue;
    const auto says = [](int number, int of) {
      return " says rank " + std::to_string(number) + " of " + std::to_string(of);
    };
    fail(ErrorCode::usage, "dspp: run needs to be started by the mpirun of the MPI that it is linked with, but " +
                               launch.by + says(all[at], all[at + 1]) + " and MPI" + says(r, size) +
                               ". Use that mpirun.");
  }
}

/// Throws on every rank, naming the difference, unless every process has the same facts.
inline void require_same_on_mpi_ranks(const Launch& launch, const Facts& facts) {
  const std::uint64_t own = facts.digest();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(launch.size));
  MPI_Allgather(&own, 8, MPI_BYTE, all.data(), 8, MPI_BYTE, MPI_COMM_WORLD);
  const OddRanks found = odd_ranks(all);
  if (found.odd.empty()) return;
  std::vector<int> members(all.size());
  std::iota(members.begin(), members.end(), 0);
  const auto text_of_rank = [&](int root) {
    std::string text = facts.sent();
    int length = static_cast<int>(text.size());
    MPI_Bcast(&length, 1, MPI_INT, root, MPI_COMM_WORLD);
    text.resize(static_cast<std::size_t>(length));
    MPI_Bcast(text.data(), length, MPI_BYTE, root, MPI_COMM_WORLD);
    return text;
  };
  fail(ErrorCode::usage, facts_sentence("run", describe_difference(members, found, text_of_rank)));
}

/// The exception of the rank to blame, on every rank.
inline std::exception_ptr error_of(const MpiFailure& failure) {
  if (failure.own_error) return std::make_exception_ptr(Error(failure.own_code, failure.reason));
  return std::make_exception_ptr(std::runtime_error(failure.reason));
}

/// Runs `rank(groups)` as this process's rank of `mesh`, if all processes have the same `facts`. Ends as thread ranks
/// do: every rank throws the exception of the rank to blame, after all have stopped, and `blame` names it. If a rank
/// has not stopped after a tenth of the timeout, from half a second to ten, `last_words(failure)` prints the sentence
/// and returns the status with which the whole job is aborted.
///
/// A rank whose process is gone is reported at once by one on the same machine; `blame.reported` is then true. If not
/// all ranks have connected within the timeout, the process ends with a sentence.
inline void run_mpi_rank(const Mesh& mesh, const Launch& launch, const RunOptions& options, const Facts& facts,
                         FunctionRef<void(const RankGroups&)> rank,
                         FunctionRef<int(const MpiFailure&, bool reports)> last_words, Blame& blame) {
  const double timeout_seconds = options.timeout_seconds, heartbeat_seconds = options.heartbeat_seconds;
  std::optional<MeetingWatch> meeting(std::in_place, launch, timeout_seconds, heartbeat_seconds);
  LastResort at_the_latest;
  const MpiSession session(has_progress_thread(options, launch));
  const bool is_possible = options.async_progress == AsyncProgress::on || mpi_has_threads();
  const bool async_progress = is_possible && has_progress_thread(options, launch);  // MPI may have bound this process
  check_mpi_launch(launch);
  require_same_on_mpi_ranks(launch, facts);
  std::exception_ptr own;
  MpiWorld mpi(mesh, {timeout_seconds, options.sum_order, async_progress});
  NeighbourWatch neighbour(
      MPI_COMM_WORLD, [&](const LostRank& lost) { write_to_stderr(mpi.lose(lost.rank, lost.process, lost.host)); });
  meeting.reset();
  try {
    rank(mpi.groups());
    mpi.leave();
  } catch (const Error& error) {
    own = std::current_exception();
    mpi.abort(error);
  } catch (const std::exception& error) {
    own = std::current_exception();
    mpi.abort(error.what());
  } catch (...) {
    own = std::current_exception();
    mpi.abort("it threw something that is not a std::exception");
  }
  const std::string last_operations = mpi.last_operations();  // now: other processes are about to end
  const double grace_seconds = std::clamp(timeout_seconds / 10, 0.5, 10.0);
  if (mpi.failure() != nullptr) at_the_latest.arm(grace_seconds + 2 + heartbeat_seconds);
  const bool all_came = mpi.end(grace_seconds);
  const MpiFailure* failure = mpi.failure();
  if (failure == nullptr) return;
  at_the_latest.arm(2 + heartbeat_seconds);
  blame = {failure->culprit, failure->reported, launch.is_first() ? last_operations : ""};
  if (!all_came) {
    const bool first = neighbour.is_first_to_report();
    const bool reports = launch.is_first() || (first && !mpi.has_ended(0));
    neighbour.announce_exit();
    const int status = last_words(*failure, reports);
    if (reports && !last_operations.empty()) write_to_stderr(last_operations);
    if (failure->reported) _exit(status);  // the launcher already ends the job, and MPI_Abort would wait for it
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  if (own && failure->culprit == launch.rank) std::rethrow_exception(own);
  std::rethrow_exception(error_of(*failure));
}

}  // namespace dspp::detail

#endif  // DSPP_HAS_MPI()
