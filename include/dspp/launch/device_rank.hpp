// SPDX-License-Identifier: Apache-2.0
/// One rank's part of a device: its memory, and the transports that reach it.
#pragma once

#include <dspp/comm/threads/world.hpp>
#include <dspp/launch/world.hpp>

namespace dspp {

/// What run() makes for each rank, on the rank's thread, and keeps for the program. A device specialises it with a Pool
/// named `pool`, the transports of its memory, and that of all ranks for the host's memory, null where it is the same.
template <Device D>
struct DeviceRank;

template <>
struct DeviceRank<Cpu> {
  Pool pool;

  DeviceRank(Size limit_bytes, const RankGroups&) : pool(limit_bytes) {}
  Groups<Cpu> groups(const RankGroups& of_host) {
    return {of_host.world, of_host.replicas, of_host[Axis::Cp], of_host[Axis::Tp]};
  }
  AnyCommunicator* host_group() { return nullptr; }
};

}  // namespace dspp
