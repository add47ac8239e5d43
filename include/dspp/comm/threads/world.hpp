// SPDX-License-Identifier: Apache-2.0
/// A world of threads arranged as a mesh: communicators of all ranks, of the replicas, by node, and along each axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <dspp/comm/rank_groups.hpp>
#include <dspp/comm/threads/threads.hpp>
#include <dspp/mesh/mesh.hpp>
#include <dspp/mesh/nodes.hpp>

namespace dspp {

/// The groups of a mesh, which share their failures: a failure anywhere stops every rank with one sentence.
class ThreadWorld {
 public:
  /// `ranks_per_node` consecutive ranks share a virtual node; 0: all do.
  ///
  /// Throws   Error(usage) unless it is from 0 to the number of ranks
  explicit ThreadWorld(const Mesh& mesh, ThreadOptions options = {}, int ranks_per_node = 0);

  const Mesh& mesh() const { return mesh_; }
  const Nodes& nodes() const { return nodes_; }

  /// The group of all ranks: run_ranks(world.group(), ...), abort(), leave().
  const ThreadGroup& group() const { return world_; }

  /// The communicators of a rank; copies are the same communicators.
  const RankGroups& groups(int rank) const;

 private:
  void connect_replicas();
  void connect_nodes();

  template <class Place>
  void connect(const std::string& name, const AxisGroup& members, Place place) {
    std::vector<int> ranks;
    for (int i = 0; i < members.size; ++i) ranks.push_back(members[i]);
    const ThreadGroup group = world_.subgroup(name, ranks);
    for (int i = 0; i < members.size; ++i) place(ranks_[static_cast<std::size_t>(members[i])]) = group.communicator(i);
  }

  Mesh mesh_;
  Nodes nodes_;
  ThreadGroup world_;
  std::vector<RankGroups> ranks_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE ThreadWorld::ThreadWorld(const Mesh& mesh, ThreadOptions options, int ranks_per_node)
    : mesh_(mesh),
      nodes_(Nodes::of_blocks(mesh.world_size(), ranks_per_node)),
      world_(mesh.world_size(), std::move(options)),
      ranks_(static_cast<std::size_t>(mesh.world_size())) {
  for (int r = 0; r < mesh.world_size(); ++r) {
    ranks_[static_cast<std::size_t>(r)].world = world_.communicator(r);
    ranks_[static_cast<std::size_t>(r)].node = nodes_.of(r);
  }
  for (Axis axis : all_axes) {
    for (int r = 0; r < mesh.world_size(); ++r) {
      const AxisGroup members = mesh.members(axis, r);
      if (members.size > 1 && members.first == r)
        connect(
            std::string("axis ") + name_of(axis), members, [&](RankGroups & g) -> auto& { return g[axis]; });
    }
  }
  connect_replicas();
  connect_nodes();
}

DSPP_INLINE const RankGroups& ThreadWorld::groups(int rank) const {
  detail::check_rank(rank, mesh_.world_size());
  return ranks_[static_cast<std::size_t>(rank)];
}

DSPP_INLINE void ThreadWorld::connect_replicas() {
  for (int r = 0; r < mesh_.world_size(); ++r) {
    RankGroups& own = ranks_[static_cast<std::size_t>(r)];
    const AxisGroup members = mesh_.replicas(r);
    if (mesh_.degrees().cp == 1)
      own.replicas = own[Axis::Data];
    else if (members.first == r)
      connect(
          "the replicas", members, [](RankGroups & g) -> auto& { return g.replicas; });
  }
}

DSPP_INLINE void ThreadWorld::connect_nodes() {
  const int on_node = nodes_.replicas_on_node(mesh_);
  for (int r = 0; on_node > 0 && r < mesh_.world_size(); ++r) {
    const AxisGroup replicas = mesh_.replicas(r);
    const NodeGroups groups(replicas, replicas.position(r), on_node);
    if (groups.within.first == r && groups.within.size > 1)
      connect(
          "the node's replicas", groups.within, [](RankGroups & g) -> auto& { return g.node_replicas; });
    if (groups.across.first == r)
      connect(
          "the replicas across nodes", groups.across, [](RankGroups & g) -> auto& { return g.across_nodes; });
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
