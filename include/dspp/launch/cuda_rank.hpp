// SPDX-License-Identifier: Apache-2.0
/// A rank on a GPU: its memory, and collectives by NCCL or through the host's.
#pragma once

#include <optional>

#include <dspp/cuda/device.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/launch/nccl_choice.hpp>
#include <dspp/launch/staged_communicator.hpp>

#if DSPP_HAS_NCCL()
#include <dspp/cuda/nccl.hpp>
#endif

namespace dspp {

/// With DSPP_WITH_NCCL=1 (and kernels/nccl.cuh, -lnccl) ranks that have a GPU each use NCCL: processes must, threads do
/// if there are enough. Else threads share the GPUs, and the host's memory moves what they send.
template <>
struct DeviceRank<Cuda> {
  int gpu;  // first: what follows is on it
  CudaMemory memory;
  Pool pool;
  AnyCommunicator host;
#if DSPP_HAS_NCCL()
  std::optional<NcclWorld> nccl;  // last: ends before its memory
#endif

  DeviceRank(Size limit_bytes, const RankGroups& of_host)
      : gpu(CudaMemory::use_gpu(detail::rank_on_machine(of_host))), pool(limit_bytes, &memory), host(of_host.world) {}
  Groups<Cuda> groups(const RankGroups& of_host) {
#if DSPP_HAS_NCCL()
    const bool shared = of_host.world.get_if<Threads>() != nullptr && CudaMemory::gpus() < of_host.world.size();
    if (!shared) {
      const RankGroups& all = nccl.emplace(of_host, memory).groups();
      return {all.world, all.replicas, all.along};
    }
#endif
    const auto staged = [&](const AnyCommunicator& group) {
      return AnyCommunicator(StagedCommunicator<CudaMemory>(group, memory));
    };
    Groups<Cuda> groups{staged(of_host.world), staged(of_host.replicas)};
    for (Axis axis : all_axes) groups.along[axis] = staged(of_host[axis]);
    return groups;
  }
  AnyCommunicator* host_group() {
    return &host;
  }
};

}  // namespace dspp
