// SPDX-License-Identifier: Apache-2.0
/// A world of TCP ranks arranged as a mesh: communicators of all ranks, of the replicas, by node, and along each axis.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <dspp/comm/rank_groups.hpp>
#include <dspp/comm/tcp/failure.hpp>
#include <dspp/comm/tcp/place.hpp>
#include <dspp/comm/tcp/tcp.hpp>
#include <dspp/mesh/mesh.hpp>
#include <dspp/mesh/nodes.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <dspp/comm/tcp/failure_state.hpp>
#include <dspp/comm/tcp/rendezvous.hpp>
#endif

namespace dspp {

namespace detail {
class TcpFailureState;
}  // namespace detail

/// The groups of a mesh, which share their failures: a failure anywhere stops every rank with one sentence. Every rank
/// makes one, and calls end(); one that only goes is lost to the others, as a process that is killed is.
///
/// Throws   Error(placement) unless the mesh has as many ranks as `place`; Error(usage) for a timeout that is not above
///          0; what detail::meet() throws
class TcpWorld {
 public:
  /// A rank that waits gives up after the timeout, here and in each operation. With async progress a thread advances
  /// operations while the rank computes.
  TcpWorld(const Mesh& mesh, const TcpPlace& place, double timeout_seconds = 600, bool async_progress = false);
  TcpWorld(const TcpWorld&) = delete;
  TcpWorld& operator=(const TcpWorld&) = delete;
  ~TcpWorld();

  const Mesh& mesh() const { return mesh_; }
  /// The machines of the ranks.
  const Nodes& nodes() const { return *nodes_; }
  int rank() const;
  /// The communicators of this rank; copies are the same communicators.
  const RankGroups& groups() const { return groups_; }

  /// From now on this rank's operations advance in its own calls alone, as after each of the next three.
  void stop_progress();

  /// This rank failed with an error: every other rank gets `reason` in an Error(aborted). True if this is the first
  /// failure that this rank knows.
  bool abort(const Error& error);
  bool abort(const std::string& reason);

  /// This rank ended normally: a rank that waits for it, now or later, gets an Error(peer_lost).
  void leave();

  /// Leaves, and returns when every rank has called end() or is gone, or, after a failure, `grace_seconds` later. False
  /// if not all came.
  bool end(double grace_seconds = 10);

  /// The first failure that this rank received; null if there is none.
  const detail::TcpFailure* failure() const;

 private:
  Tcp connect(const std::string& name, const AxisGroup& members);
  bool abort(const std::string& reason, bool own_error, ErrorCode code);

  Mesh mesh_;
  std::shared_ptr<detail::TcpFailureState> failures_;
  std::unique_ptr<Nodes> nodes_;
  RankGroups groups_;
  int connected_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TcpWorld::TcpWorld(const Mesh& mesh, const TcpPlace& place, double timeout_seconds, bool async_progress)
    : mesh_(mesh) {
  if (!(timeout_seconds > 0))
    fail(ErrorCode::usage, "dspp: a world of TCP ranks needs a timeout above 0 seconds, but got " +
                               std::to_string(timeout_seconds) + ". Leave it out for 600.");
  if (place.size != mesh.world_size())
    fail(ErrorCode::placement, "dspp: a mesh of " + std::to_string(mesh.world_size()) +
                                   " ranks needs as many TCP ranks, but WORLD_SIZE is " + std::to_string(place.size) +
                                   ". Start another number.");
  detail::TcpMeeting meeting = detail::meet(place, timeout_seconds);
  nodes_ = std::make_unique<Nodes>(meeting.nodes);
  failures_ = std::make_shared<detail::TcpFailureState>(place.rank, std::move(meeting.links), timeout_seconds);
  groups_.node = nodes_->of(rank());
  groups_.world = connect("the world", AxisGroup{0, 1, mesh.world_size()});
  for (Axis axis : all_axes)
    if (mesh.degrees()[axis] > 1)
      groups_[axis] = connect(std::string("axis ") + name_of(axis), mesh.members(axis, rank()));
  groups_.replicas = groups_[Axis::Data];
  if (mesh.degrees().cp > 1) groups_.replicas = connect("the replicas", mesh.replicas(rank()));
  if (const int on_node = nodes_->replicas_on_node(mesh); on_node > 0) {
    const AxisGroup replicas = mesh.replicas(rank());
    const NodeGroups by_node(replicas, replicas.position(rank()), on_node);
    if (on_node > 1) groups_.node_replicas = connect("the node's replicas", by_node.within);
    groups_.across_nodes = connect("the replicas across nodes", by_node.across);
  }
  if (async_progress) failures_->progress.start([failures = failures_.get()] { return failures->advance_all(); });
}

DSPP_INLINE TcpWorld::~TcpWorld() {
  stop_progress();
}

DSPP_INLINE void TcpWorld::stop_progress() {
  failures_->progress.stop();
}

DSPP_INLINE Tcp TcpWorld::connect(const std::string& name, const AxisGroup& members) {
  std::vector<int> ranks;
  for (int i = 0; i < members.size; ++i) ranks.push_back(members[i]);
  return Tcp(std::make_shared<detail::TcpRank>(failures_, connected_++, name, std::move(ranks)));
}

DSPP_INLINE int TcpWorld::rank() const {
  return failures_->rank();
}

DSPP_INLINE void TcpWorld::leave() {
  stop_progress();
  failures_->end();
}

DSPP_INLINE const detail::TcpFailure* TcpWorld::failure() const {
  return failures_->failed() ? &failures_->failure() : nullptr;
}

DSPP_INLINE bool TcpWorld::abort(const Error& error) {
  return abort(error.what(), true, error.code());
}

DSPP_INLINE bool TcpWorld::abort(const std::string& reason) {
  return abort(reason, false, ErrorCode::aborted);
}

DSPP_INLINE bool TcpWorld::abort(const std::string& reason, bool own_error, ErrorCode code) {
  stop_progress();
  return failures_->fail(
      {ErrorCode::aborted, detail::aborted_sentence(rank(), reason), rank(), own_error, code, reason});
}

DSPP_INLINE bool TcpWorld::end(double grace_seconds) {
  stop_progress();
  failures_->end();
  auto deadline = detail::TcpClock::time_point::max();
  while (!failures_->all_ended()) {
    failures_->poll(20);
    if (failures_->failed() && deadline == detail::TcpClock::time_point::max())
      deadline = detail::after_seconds(grace_seconds);
    if (detail::TcpClock::now() > deadline) return false;
  }
  return true;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
