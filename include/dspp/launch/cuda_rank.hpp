// SPDX-License-Identifier: Apache-2.0
/// A rank on a GPU: its memory, and collectives through the host's.
#pragma once

#include <dspp/cuda/device.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/launch/staged_communicator.hpp>

namespace dspp {

template <>
struct DeviceRank<Cuda> {
  CudaMemory memory;
  Pool pool;
  AnyCommunicator host;

  DeviceRank(Size limit_bytes, const RankGroups& of_host) : pool(limit_bytes, &memory), host(of_host.world) {}
  Groups<Cuda> groups(const RankGroups& of_host) {
    const auto staged = [&](const AnyCommunicator& group) {
      return AnyCommunicator(StagedCommunicator<CudaMemory>(group, memory));
    };
    Groups<Cuda> groups{staged(of_host.world), staged(of_host.replicas)};
    for (Axis axis : all_axes) groups.along[axis] = staged(of_host[axis]);
    return groups;
  }
  AnyCommunicator* host_group() { return &host; }
};

}  // namespace dspp
