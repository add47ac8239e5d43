// SPDX-License-Identifier: Apache-2.0
/// The nodes of a world's ranks: machines, or virtual nodes of thread ranks.
#pragma once

#include <string>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>
#include <dspp/mesh/mesh.hpp>

namespace dspp {

/// The node of one rank: torchrun's GROUP_RANK, LOCAL_RANK and LOCAL_WORLD_SIZE.
struct NodePlace {
  int node = 0;
  int nodes = 1;
  int local_rank = 0;  ///< among the ranks of its node
  int local_size = 1;
  int ranks_per_node = 0;  ///< of each node, in a row; 0: one node, or nodes that are otherwise

  friend constexpr bool operator==(const NodePlace&, const NodePlace&) = default;
};

/// The node of every rank of a world. Nodes are numbered in the order of their lowest ranks, and the ranks of a node in
/// rank order.
class Nodes {
 public:
  /// `ranks_per_node` consecutive ranks on each, the rest on the last; 0: one node.
  ///
  /// Throws   Error(usage) unless `ranks_per_node` is from 0 to the number of ranks
  static Nodes of_blocks(int ranks, int ranks_per_node);

  /// `keys[r]` is equal for ranks that share a node, and differs for others.
  explicit Nodes(const std::vector<int>& keys);

  int count() const { return count_; }
  int ranks() const { return static_cast<int>(places_.size()); }
  const NodePlace& of(int rank) const { return places_.at(static_cast<std::size_t>(rank)); }

  /// How many replicas of a rank are on each node, one after the other; 0 if there is one node, or if it is not as many
  /// on every node, for every rank.
  int replicas_on_node(const Mesh& mesh) const;

 private:
  int count_ = 0;
  std::vector<NodePlace> places_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Nodes Nodes::of_blocks(int ranks, int ranks_per_node) {
  if (ranks_per_node < 0 || ranks_per_node > ranks)
    fail(ErrorCode::usage, "dspp: virtual nodes need ranks_per_node from 1 to the number of ranks, " +
                               std::to_string(ranks) + ", or 0 for one node, but got " +
                               std::to_string(ranks_per_node) + ". Leave it out, or start more ranks.");
  std::vector<int> keys;
  for (int r = 0; r < ranks; ++r) keys.push_back(ranks_per_node == 0 ? 0 : r / ranks_per_node);
  return Nodes(keys);
}

DSPP_INLINE Nodes::Nodes(const std::vector<int>& keys) {
  std::vector<int> keys_of_nodes, sizes;
  for (const int key : keys) {
    int node = 0;
    while (node < count_ && keys_of_nodes[static_cast<std::size_t>(node)] != key) ++node;
    if (node == count_) {
      keys_of_nodes.push_back(key), sizes.push_back(0);
      ++count_;
    }
    places_.push_back({.node = node, .local_rank = sizes[static_cast<std::size_t>(node)]++});
  }
  for (NodePlace& place : places_) {
    place.nodes = count_;
    place.local_size = sizes[static_cast<std::size_t>(place.node)];
  }
  const int size = count_ > 1 ? sizes[0] : 0;
  bool in_rows = size > 0 && count_ * size == ranks();
  for (int r = 0; in_rows && r < ranks(); ++r) in_rows = of(r).node == r / size;
  for (NodePlace& place : places_) place.ranks_per_node = in_rows ? size : 0;
}

DSPP_INLINE int Nodes::replicas_on_node(const Mesh& mesh) const {
  return count_ == 1 ? 0 : dspp::replicas_on_node(mesh, [this](int rank) { return of(rank).node; });
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
