// SPDX-License-Identifier: Apache-2.0
/// A rank on a GPU: its memory, and its collectives.
#pragma once

#include <dspp/comm/threads/threads.hpp>
#include <dspp/cuda/device.hpp>
#include <dspp/cuda/threads.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/launch/staged_communicator.hpp>

namespace dspp {

/// Ranks that are threads share a GPU, whose copies and kernels are their collectives; the collectives of processes go
/// through the host's memory.
template <>
struct DeviceRank<Cuda> {
  CudaMemory memory;
  Pool pool;
  AnyCommunicator host;

  DeviceRank(Size limit_bytes, const RankGroups& of_host) : pool(limit_bytes, &memory), host(of_host.world) {}
  Groups<Cuda> groups(const RankGroups& of_host) {
    Groups<Cuda> groups{on_device(of_host.world), on_device(of_host.replicas)};
    for (Axis axis : all_axes) groups.along[axis] = on_device(of_host[axis]);
    return groups;
  }
  AnyCommunicator* host_group() { return &host; }

 private:
  struct Copy {
    CudaMemory* memory;
    void operator()(void* to, const void* from, Size bytes) const {
      memory->copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    }
  };

  AnyCommunicator on_device(const AnyCommunicator& of_host) {
    if (of_host.size() == 1) return AnyCommunicator(SelfOn<Copy>(Copy{&memory}));
    if (const Threads* threads = of_host.get_if<Threads>())
      return AnyCommunicator(threads->on_device(cuda_share(memory)));
    return AnyCommunicator(StagedCommunicator<CudaMemory>(of_host, memory));
  }
};

}  // namespace dspp
