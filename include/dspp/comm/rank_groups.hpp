// SPDX-License-Identifier: Apache-2.0
/// The communicators of one rank: all ranks, the replicas, also by node, and each axis of the mesh.
#pragma once

#include <dspp/comm/any_communicator.hpp>
#include <dspp/mesh/axis.hpp>
#include <dspp/mesh/nodes.hpp>

namespace dspp {

/// The groups of one rank. An axis of degree 1 is a Self.
struct RankGroups {
  AnyCommunicator world;
  AnyCommunicator replicas;  ///< the ranks along Data and Cp; where Cp is 1, the axis Data
  PerAxis<AnyCommunicator> along;
  /// Where there are several nodes with as many replicas each (Nodes::replicas_on_node): the replicas on this rank's
  /// node, and those with its place on every node. Else a Self.
  AnyCommunicator node_replicas, across_nodes;
  NodePlace node{};  ///< of this rank

  AnyCommunicator& operator[](Axis axis) { return along[axis]; }
  const AnyCommunicator& operator[](Axis axis) const { return along[axis]; }
};

}  // namespace dspp
