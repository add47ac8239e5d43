// SPDX-License-Identifier: Apache-2.0
/// The world of one rank: its coordinates on the mesh, its groups, its memory, the seed. A value, not a global.
#pragma once

#include <cstdint>
#include <utility>

#include <dspp/autograd/context.hpp>
#include <dspp/mesh/mesh.hpp>
#include <dspp/mesh/nodes.hpp>
#include <dspp/nn/layer.hpp>

namespace dspp {

/// The communicators of one rank.
template <Device D>
struct Groups {
  CommunicatorOf<D> world;
  CommunicatorOf<D> replicas;          ///< the ranks along Data and Cp
  PerAxis<CommunicatorOf<D>> along{};  ///< the ranks along one axis
  CommunicatorOf<D> node_replicas{};   ///< as in RankGroups
  CommunicatorOf<D> across_nodes{};
};

/// Bytes that a rank reads from ranks of its own node, and from those of other nodes.
struct LinkBytes {
  Size inner = 0;
  Size outer = 0;
  friend constexpr bool operator==(const LinkBytes&, const LinkBytes&) = default;
};

/// Policy P fixes the degrees of the model axes; the data degree is the ranks divided by them.
template <class P>
class World {
 public:
  using DeviceType = DeviceOf<P>;
  using MemoryType = Memory<DeviceType>;

  /// All ranks on one node.
  constexpr World(const Mesh& mesh, int rank, Groups<DeviceType> groups, MemoryType& memory, std::uint64_t seed = 0)
      : World(mesh, rank, std::move(groups), memory, seed, {.local_rank = rank, .local_size = mesh.world_size()}) {}
  /// `host`: all ranks, for host memory, if the groups' memory is another; must outlive the world.
  constexpr World(const Mesh& mesh, int rank, Groups<DeviceType> groups, MemoryType& memory, std::uint64_t seed,
                  const NodePlace& on, CommunicatorOf<DeviceType>* host = nullptr)
      : mesh_(mesh),
        place_(mesh.coordinates(rank)),
        node_(on),
        rank_(rank),
        groups_(std::move(groups)),
        memory_(&memory),
        seed_(seed),
        host_(host) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  constexpr int rank() const { return rank_; }
  constexpr int size() const { return mesh_.world_size(); }
  constexpr bool is_first() const { return rank_ == 0; }
  constexpr const Mesh& mesh() const { return mesh_; }
  constexpr const Coordinates& place() const { return place_; }
  /// This rank's shard of the global batch: the ranks along Cp and Tp have the same samples.
  constexpr int data_rank() const { return place_.data; }
  constexpr int data_size() const { return mesh_.degrees().data; }
  /// This rank's part of the sequences, of P::cp, and of what layers cut, of P::tp.
  constexpr int cp_rank() const { return place_.cp; }
  constexpr int tp_rank() const { return place_.tp; }
  /// The node of this rank, a machine or a virtual node of thread ranks, and the rank's number there.
  constexpr int node() const { return node_.node; }
  constexpr int nodes() const { return node_.nodes; }
  constexpr int local_rank() const { return node_.local_rank; }
  constexpr int local_size() const { return node_.local_size; }

  /// All ranks, for the device's memory, as the groups below.
  constexpr CommunicatorOf<DeviceType>& all() { return groups_.world; }
  /// All ranks, for host memory: texts, digests, decisions.
  constexpr CommunicatorOf<DeviceType>& host() { return host_ ? *host_ : groups_.world; }
  /// The ranks along Data and Cp, which hold the same parameters and sum their gradients.
  constexpr CommunicatorOf<DeviceType>& replicas() { return groups_.replicas; }
  /// Those of them on this rank's node, and those with its place on every node. If nodes have different numbers of
  /// replicas, or they are not neighbours, each is this rank alone.
  constexpr CommunicatorOf<DeviceType>& node_replicas() {
    return node_.nodes == 1 ? groups_.replicas : groups_.node_replicas;
  }
  constexpr CommunicatorOf<DeviceType>& across_nodes() { return groups_.across_nodes; }
  /// The ranks along one axis.
  constexpr CommunicatorOf<DeviceType>& along(Axis axis) { return groups_.along[axis]; }
  constexpr CommunicatorOf<DeviceType>& data() { return P::cp == 1 ? groups_.replicas : groups_.along.data; }
  constexpr CommunicatorOf<DeviceType>& cp() { return groups_.along.cp; }
  constexpr CommunicatorOf<DeviceType>& tp() { return groups_.along.tp; }
  /// The traffic of this rank over all groups of its device.
  constexpr Traffic traffic() const {
    Traffic sum = groups_.world.traffic() + groups_.replicas.traffic() + groups_.node_replicas.traffic() +
                  groups_.across_nodes.traffic();
    for (Axis axis : all_axes)
      if (axis != Axis::Data || P::cp > 1) sum = sum + groups_.along[axis].traffic();  // else that of the replicas
    return sum;
  }
  /// The bytes of that, checks of the ranks left out, by link. Exact where each other rank of a group gives as much, as
  /// in the collectives of parameters and gradients. Zeros if nodes do not have consecutive ranks, as many each.
  constexpr LinkBytes links() const {
    if (node_.nodes == 1) return {traffic().without(Purpose::check).total(), 0};
    LinkBytes sum;
    if (node_.ranks_per_node == 0) return sum;
    add_links(sum, groups_.world, {0, 1, size()});
    add_links(sum, groups_.replicas, mesh_.replicas(rank_));
    sum.inner += without_checks(groups_.node_replicas);
    sum.outer += without_checks(groups_.across_nodes);
    for (Axis axis : all_axes)
      if (axis != Axis::Data || P::cp > 1) add_links(sum, groups_.along[axis], mesh_.members(axis, rank_));
    return sum;
  }
  constexpr MemoryType& memory() { return *memory_; }
  constexpr std::uint64_t seed() const { return seed_; }

 private:
  static constexpr Size without_checks(const CommunicatorOf<DeviceType>& group) {
    return group.traffic().without(Purpose::check).total();
  }
  constexpr void add_links(LinkBytes& sum, const CommunicatorOf<DeviceType>& group, const AxisGroup& members) const {
    const Size bytes = without_checks(group);
    if (members.size == 1 || bytes == 0) return;
    Size far = 0;
    for (int i = 0; i < members.size; ++i) far += members[i] / node_.ranks_per_node != node_.node ? 1 : 0;
    const Size outer = bytes * far / (members.size - 1);
    sum.outer += outer, sum.inner += bytes - outer;
  }

  Mesh mesh_;
  Coordinates place_;
  NodePlace node_;
  int rank_;
  Groups<DeviceType> groups_;
  MemoryType* memory_;
  std::uint64_t seed_;
  CommunicatorOf<DeviceType>* host_;
};

/// The mesh of policy P on `ranks` ranks.
///
/// Throws   Error(placement) unless the degrees divide the ranks
template <class P>
constexpr Mesh mesh_of(int ranks) {
  constexpr int model = Mesh(P::degrees).world_size();
  require(ranks >= 1, "dspp: a world needs at least 1 rank, but got fewer. Give it the number of ranks.",
          ErrorCode::placement, {{"ranks", ranks}});
  if (ranks % model != 0) detail::fail_of_ranks(ranks, P::cp, P::tp, model);
  Degrees degrees = P::degrees;
  degrees.data = ranks / model;
  return Mesh(degrees);
}

}  // namespace dspp
