// SPDX-License-Identifier: Apache-2.0
/// The host's side of a group whose data a device's transport moves: NCCL's.
#pragma once

#include <span>
#include <utility>

#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/tcp/tcp.hpp>
#include <dspp/comm/threads/threads.hpp>

#if DSPP_HAS_MPI()
#include <dspp/comm/mpi/mpi.hpp>
#endif

namespace dspp {

/// A group of threads, or of processes that MPI or TCP connects, on which another transport announces its calls. They
/// are compared, and a rank that is late, has left or is lost is named, in the sentences of the host's own collectives;
/// the data do not pass through the host. A group of one announces nothing.
///
/// Cost     of a call what the host's communicator sends before its own: a word in memory between threads, a message of
///          some 150 bytes to every other rank between processes. At most 16 calls are unanswered; one more waits.
class HostGroup {
 public:
  /// Throws   Error(usage) for a communicator of several ranks that are neither threads nor MPI's nor TCP's
  explicit HostGroup(AnyCommunicator group) : group_(std::move(group)) {
    if (group_.size() > 1 && !with([](auto&) { return true; }, false))
      fail(
          ErrorCode::usage,
          "dspp: a device's collectives need a host group of threads or MPI ranks, which compares their calls, but got "
          "another communicator. Use ThreadWorld or MpiWorld.");
  }

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  /// For host memory.
  AnyCommunicator& communicator() { return group_; }
  const AnyCommunicator& communicator() const { return group_; }

  /// See detail::Posting.
  Pending<> announce(Collective collective, PurposeAt purpose, int root, std::span<const detail::PostedPair> pairs,
                     int peer = -1) {
    return with([&](auto& c) { return c.announce(collective, purpose, root, pairs, peer); }, Pending<>());
  }
  void poll() {
    with([](auto& c) { return c.poll(), 0; }, 0);
  }
  void expire() {
    with([](auto& c) { return c.expire(), 0; }, 0);
  }
  void abort(const Error& error) {
    with([&](auto& c) { return c.abort(error), 0; }, 0);
  }
  /// Of a group of one: none.
  double timeout_seconds() const {
    return with([](auto& c) { return c.timeout_seconds(); }, 1e9);
  }
  /// True if both are handles on one communicator.
  bool is_same_as(const HostGroup& other) const { return size() > 1 && identity() == other.identity(); }
  bool is_of_threads() const { return group_.get_if<Threads>() != nullptr; }

 private:
  template <class F, class Otherwise>
  Otherwise with(F f, Otherwise otherwise) const {
    if (Threads* threads = group_.get_if<Threads>()) return f(*threads);
    if (Tcp* tcp = group_.get_if<Tcp>()) return f(*tcp);
#if DSPP_HAS_MPI()
    if (Mpi* mpi = group_.get_if<Mpi>()) return f(*mpi);
#endif
    return otherwise;
  }
  const void* identity() const {
    return with([](auto& c) { return static_cast<const void*>(&c); }, static_cast<const void*>(nullptr));
  }

  AnyCommunicator group_;
};

}  // namespace dspp
