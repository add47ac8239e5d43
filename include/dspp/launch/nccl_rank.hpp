// SPDX-License-Identifier: Apache-2.0
/// A rank with a GPU of its own, whose collectives are NCCL's.
#pragma once

#include <optional>

#include <dspp/cuda/device.hpp>
#include <dspp/cuda/nccl.hpp>
#include <dspp/launch/device_rank.hpp>

namespace dspp {

/// As a DeviceRank. The GPU is that of the rank's number on its machine, of those that the process sees.
struct NcclRank {
  CudaThread thread;  // first: what follows is on its GPU
  CudaMemory memory;
  Pool pool;
  AnyCommunicator host;
  NcclOptions options;
  std::optional<NcclWorld> nccl;  // last: ends before its memory

  NcclRank(Size limit_bytes, const RankGroups& of_host, NcclOptions with = {})
      : thread(of_host.world.rank(), detail::rank_on_machine(of_host)),
        pool(limit_bytes, &memory),
        host(of_host.world),
        options(with) {}
  Groups<Cuda> groups(const RankGroups& of_host) {
    const RankGroups& all = nccl.emplace(of_host, memory, options).groups();
    host = nccl->host();
    return {all.world, all.replicas, all.along, all.node_replicas, all.across_nodes};
  }
  AnyCommunicator* host_group() { return &host; }
  void end() { nccl->end(); }
};

}  // namespace dspp
