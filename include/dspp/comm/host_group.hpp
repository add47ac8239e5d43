// SPDX-License-Identifier: Apache-2.0
/// The host's side of a group whose data a device's transport moves: NCCL's.
#pragma once

#include <span>
#include <utility>

#include <dspp/comm/any_communicator.hpp>

namespace dspp {

/// A group of threads, or of processes that MPI or TCP connects, on which another transport announces its calls. They
/// are compared, and a rank that is late, has left or is lost is named, in the sentences of the host's own collectives;
/// the data do not pass through the host. A group of one announces nothing.
///
/// Cost     of a call what the host's communicator sends before its own: a word in memory between threads, a message of
///          some 150 bytes to every other rank between processes. At most 16 calls are unanswered; one more waits.
class HostGroup {
 public:
  /// Throws   Error(usage) for a communicator of several ranks that compares no calls, as Threads, Mpi and Tcp do
  explicit HostGroup(AnyCommunicator group) : group_(std::move(group)), calls_(group_.table_->host) {
    if (group_.size() > 1 && calls_ == nullptr)
      fail(ErrorCode::usage,
           "dspp: a device's collectives need a host group of threads or of ranks that MPI or TCP connects, which "
           "compares their calls, but got another communicator. Use ThreadWorld, MpiWorld or TcpWorld.");
  }

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  /// For host memory.
  AnyCommunicator& communicator() { return group_; }
  const AnyCommunicator& communicator() const { return group_; }

  /// See detail::Posting.
  Pending<> announce(Collective collective, PurposeAt purpose, int root, std::span<const detail::PostedPair> pairs,
                     int peer = -1) {
    return calls_ ? calls_->announce(to(), collective, purpose, root, pairs, peer) : Pending<>();
  }
  void poll() {
    if (calls_) calls_->poll(to());
  }
  void expire() {
    if (calls_) calls_->expire(to());
  }
  void abort(const Error& error) {
    if (calls_) calls_->abort(to(), error);
  }
  /// Of a group of one: none.
  double timeout_seconds() const { return calls_ ? calls_->timeout_seconds(to()) : 1e9; }
  /// True if both are handles on one communicator of several ranks.
  bool is_same_as(const HostGroup& other) const { return size() > 1 && to() == other.to(); }
  bool is_of_threads() const { return calls_ && calls_->of_threads; }

 private:
  void* to() const { return group_.model_.get(); }

  AnyCommunicator group_;
  const detail::HostCalls* calls_;  ///< null for a Self
};

}  // namespace dspp
