// SPDX-License-Identifier: Apache-2.0
/// This process as one rank of a world that TCP connects: what run() does where MASTER_ADDR and MASTER_PORT are set.
#pragma once

#include <exception>

#include <dspp/base/function_ref.hpp>
#include <dspp/comm/same_facts.hpp>
#include <dspp/comm/tcp/world.hpp>
#include <dspp/launch/ending.hpp>
#include <dspp/launch/run_options.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <stdexcept>

#include <dspp/comm/last_resort.hpp>
#include <dspp/comm/tcp/failure_state.hpp>
#endif

namespace dspp::detail {

/// The exception of the rank to blame, on every rank.
std::exception_ptr error_of(const TcpFailure& failure);

/// Runs `rank(groups)` as this process's rank of `mesh`, if all processes have the same `facts`. Ends as thread ranks
/// do: every rank throws the exception of the rank to blame, which `blame` names, after all have stopped, or a tenth of
/// the timeout later, from half a second to ten. If this process hangs then, the system ends it.
void run_tcp_rank(const Mesh& mesh, const TcpPlace& place, const RunOptions& options, bool async_progress,
                  const Facts& facts, FunctionRef<void(const RankGroups&)> rank, Blame& blame);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::exception_ptr error_of(const TcpFailure& failure) {
  if (failure.own_error) return std::make_exception_ptr(Error(failure.own_code, failure.reason));
  return std::make_exception_ptr(std::runtime_error(failure.reason));
}

DSPP_INLINE void run_tcp_rank(const Mesh& mesh, const TcpPlace& place, const RunOptions& options, bool async_progress,
                              const Facts& facts, FunctionRef<void(const RankGroups&)> rank, Blame& blame) {
  const double timeout_seconds = options.timeout_seconds, heartbeat_seconds = options.heartbeat_seconds;
  LastResort at_the_latest;
  TcpWorld tcp(mesh, place, timeout_seconds, async_progress);
  std::exception_ptr own;
  try {
    AnyCommunicator all = tcp.groups().world;
    require_same_on_all_ranks(all, "run", facts);
    rank(tcp.groups());
    tcp.leave();
  } catch (const Error& error) {
    own = std::current_exception();
    tcp.abort(error);
  } catch (const std::exception& error) {
    own = std::current_exception();
    tcp.abort(error.what());
  } catch (...) {
    own = std::current_exception();
    tcp.abort("it threw something that is not a std::exception");
  }
  const double grace_seconds = std::clamp(timeout_seconds / 10, 0.5, 10.0);
  if (tcp.failure() != nullptr) at_the_latest.arm(grace_seconds + 2 + heartbeat_seconds);
  tcp.end(grace_seconds);
  const TcpFailure* const failure = tcp.failure();
  if (failure == nullptr) return;
  blame.rank = failure->culprit;
  if (own && failure->culprit == place.rank) std::rethrow_exception(own);
  std::rethrow_exception(error_of(*failure));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
