// SPDX-License-Identifier: Apache-2.0
/// A world of MPI ranks arranged as a mesh: communicators of all ranks, of the replicas, by node, and along each axis.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dspp/comm/mpi/mpi.hpp>
#include <dspp/comm/rank_groups.hpp>
#include <dspp/mesh/mesh.hpp>
#include <dspp/mesh/nodes.hpp>

namespace dspp {

namespace detail {
/// The nodes of the ranks: ranks that can share memory are on one node. Collective over `comm`.
inline Nodes nodes_of(MPI_Comm comm) {
  int key = 0, ranks = 1;
  MPI_Comm_rank(comm, &key);
  MPI_Comm_size(comm, &ranks);
  MPI_Comm here = MPI_COMM_NULL;
  std::vector<int> keys(static_cast<std::size_t>(ranks));
  if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &here) == MPI_SUCCESS) {
    MPI_Bcast(&key, 1, MPI_INT, 0, here);  // the lowest rank of the node
    MPI_Comm_free(&here);
  }
  MPI_Allgather(&key, 1, MPI_INT, keys.data(), 1, MPI_INT, comm);
  return Nodes(keys);
}

/// Whether MPI was initialised so that a progress thread may call it beside the rank's own.
inline bool mpi_has_threads() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level >= MPI_THREAD_MULTIPLE;
}
}  // namespace detail

struct MpiOptions {
  double timeout_seconds = 600;         ///< after which a waiting rank gives up
  SumOrder sum_order = SumOrder::rank;  ///< transport: MPI's own collectives reduce and gather
  bool async_progress = false;          ///< a thread advances operations while the rank computes
};

/// The groups of a mesh, which share their failures: a failure anywhere stops every rank with one sentence. Every rank
/// of `parent` makes one, in the same order.
///
/// Throws   Error(placement) unless the mesh has as many ranks as `parent`; Error(usage) for a timeout that is not
///          above 0, a sum order that is not offered or differs between ranks, or async_progress of an MPI that was not
///          initialised for MPI_THREAD_MULTIPLE
class MpiWorld {
 public:
  explicit MpiWorld(const Mesh& mesh, MpiOptions options = {}, MPI_Comm parent = MPI_COMM_WORLD)
      : mesh_(mesh),
        failures_(std::make_shared<detail::MpiFailureState>(parent, options.timeout_seconds)),
        nodes_(detail::nodes_of(failures_->comm())),
        sum_order_(options.sum_order) {
    check_sum_order();
    if (failures_->ranks() != mesh.world_size())
      fail(ErrorCode::placement, "dspp: a mesh of " + std::to_string(mesh.world_size()) +
                                     " ranks needs as many MPI ranks, but there are " +
                                     std::to_string(failures_->ranks()) + ". Start another number with mpirun -n.");
    groups_.node = nodes_.of(rank());
    groups_.world = connect("the world", AxisGroup{0, 1, mesh.world_size()});
    for (Axis axis : all_axes) {
      if (mesh.degrees()[axis] == 1) continue;
      groups_[axis] = connect(std::string("axis ") + name_of(axis), mesh.members(axis, rank()));
    }
    groups_.replicas = groups_[Axis::Data];
    if (mesh.degrees().cp > 1) groups_.replicas = connect("the replicas", mesh.replicas(rank()));
    connect_nodes();
    if (options.async_progress) start_progress();
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  ~MpiWorld() { stop_progress(); }

  const Mesh& mesh() const { return mesh_; }
  /// The nodes of the ranks.
  const Nodes& nodes() const { return nodes_; }
  int rank() const { return failures_->rank(); }

  /// From now on this rank's operations advance in its own calls alone, as after each of the next three.
  void stop_progress() { failures_->progress.stop(); }

  /// The communicators of this rank; copies are the same communicators.
  const RankGroups& groups() const { return groups_; }

  /// This rank failed with an error: every other rank gets `reason` in an Error(aborted). True if this is the first
  /// failure that this rank knows.
  bool abort(const Error& error) { return abort(error.what(), true, error.code()); }
  bool abort(const std::string& reason) { return abort(reason, false, ErrorCode::aborted); }

  /// This rank ended normally: a rank that waits for it, now or later, gets an Error(peer_lost).
  void leave() {
    stop_progress();
    for (const auto& end : ends_) end->leave();
  }

  /// Leaves, and returns when every rank has called end() or, after a failure, `grace_seconds` later; a tenth of a
  /// second if the process of a rank is gone. False if not all ranks called it.
  bool end(double grace_seconds = 10) {
    using Clock = detail::MpiFailureState::Clock;
    stop_progress();
    if (!failures_->failed()) leave();
    failures_->end();
    auto deadline = Clock::time_point::max();
    for (failures_->poll(); !failures_->all_ended(); failures_->poll()) {
      if (failures_->failed() && deadline == Clock::time_point::max()) {
        const double seconds = failures_->failure().reported ? std::min(grace_seconds, 0.1) : grace_seconds;
        deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
      }
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    for (const auto& end : ends_) {
      if (!failures_->failed()) end->drain();
    }
    return true;
  }

  /// True if the rank has called end().
  bool has_ended(int rank) const { return failures_->has_ended(rank); }

  /// For another thread: the process of a rank is gone, which becomes the failure of this world unless it has one.
  /// Returns the sentence.
  std::string lose(int rank, long process, const std::string& host) {
    const std::string where = failures_->ask();
    const std::string other = "rank " + std::to_string(rank);
    const std::string sentence = "dspp: rank " + std::to_string(this->rank()) + " needs " + other +
                                 (where.empty() ? "" : " in " + where) + ", but process " + std::to_string(process) +
                                 " of " + other + " on " + host +
                                 " is gone. Look for what ended it, such as the system for want of memory.";
    failures_->lose(rank, sentence);
    return sentence;
  }

  /// After a timeout the last operations of each rank, a line each; else empty. Only of ranks whose processes still run
  /// on this machine.
  std::string last_operations() const { return failures_->last_operations(); }

  /// The first failure that this rank received; null if there is none.
  const detail::MpiFailure* failure() const { return failures_->failed() ? &failures_->failure() : nullptr; }

 private:
  Mpi connect(const std::string& name, const AxisGroup& members) {
    std::vector<int> ranks;
    for (int i = 0; i < members.size; ++i) ranks.push_back(members[i]);
    MPI_Comm comm = MPI_COMM_NULL;
    failures_->good(MPI_Comm_split(failures_->comm(), members.first, rank(), &comm), "split the world");
    if (failures_->failed()) failures_->rethrow();
    ends_.push_back(std::make_shared<detail::MpiRank>(failures_, comm, name, std::move(ranks), sum_order_));
    return Mpi(ends_.back());
  }

  void connect_nodes() {
    const int on_node = nodes_.replicas_on_node(mesh_);
    if (on_node == 0) return;
    const AxisGroup replicas = mesh_.replicas(rank());
    const NodeGroups groups(replicas, replicas.position(rank()), on_node);
    if (on_node > 1) groups_.node_replicas = connect("the node's replicas", groups.within);
    groups_.across_nodes = connect("the replicas across nodes", groups.across);
  }

  void start_progress() {
    if (!detail::mpi_has_threads())
      fail(
          ErrorCode::usage,
          "dspp: async progress of MPI ranks needs MPI_THREAD_MULTIPLE, but MPI offers less. Call MPI_Init_thread with "
          "it, or set AsyncProgress::off.");
    failures_->progress.start([failures = failures_.get()] { return detail::MpiRank::advance_all(*failures); });
  }

  void check_sum_order() const {
    const int own = static_cast<int>(sum_order_);
    int ends[2] = {own, -own};
    MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_INT, MPI_MIN, failures_->comm());
    detail::check_sum_order("a world of MPI ranks", sum_order_);
    if (ends[0] == -ends[1]) return;
    fail(ErrorCode::usage, "dspp: a world of MPI ranks needs one sum order, but rank " + std::to_string(rank()) +
                               " has " + name_of(sum_order_) + " and others another. Give all ranks the same.");
  }

  bool abort(const std::string& reason, bool own_error, ErrorCode code) {
    stop_progress();
    return failures_->fail(
        {ErrorCode::aborted, detail::aborted_sentence(rank(), reason), rank(), own_error, code, reason, false});
  }

  Mesh mesh_;
  std::shared_ptr<detail::MpiFailureState> failures_;
  Nodes nodes_;
  SumOrder sum_order_;
  RankGroups groups_;
  std::vector<std::shared_ptr<detail::MpiRank>> ends_;
};

/// Initialises MPI and finalises it at its end, unless MPI is initialised already; with threads for async progress.
/// run() makes one.
///
/// Throws   Error(state) if MPI was finalised before, since MPI can be initialised once per process
class MpiSession {
 public:
  explicit MpiSession(bool async_progress = false) {
    int begun = 0, over = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    if (over != 0)
      fail(ErrorCode::state,
           "dspp: MPI needs to be initialised once per process, but it was finalised before. Call run() once under "
           "mpirun, or MPI_Init before the first.");
    if (begun != 0) return;
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, async_progress ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    mine_ = true;
  }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession() {
    if (mine_) MPI_Finalize();
  }

 private:
  bool mine_ = false;
};

}  // namespace dspp

#endif  // DSPP_HAS_MPI()
