// SPDX-License-Identifier: Apache-2.0
/// The communicators of one rank: all ranks, the replicas, and each axis of the mesh.
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
  NodePlace node{};  ///< of this rank

  AnyCommunicator& operator[](Axis axis) { return along[axis]; }
  const AnyCommunicator& operator[](Axis axis) const { return along[axis]; }
};

}  // namespace dspp
