// SPDX-License-Identifier: Apache-2.0
/// A rank on a GPU: its memory, and its collectives.
#pragma once

#include <cstdio>
#include <optional>

#include <dspp/comm/threads/threads.hpp>
#include <dspp/cuda/device.hpp>
#include <dspp/cuda/like_gpus.hpp>
#include <dspp/cuda/threads.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/launch/nccl_choice.hpp>
#include <dspp/launch/staged_communicator.hpp>

#if DSPP_HAS_NCCL()
#include <dspp/cuda/nccl.hpp>
#endif

namespace dspp {

/// Ranks that are threads and have one GPU together share it: its copies and kernels are their collectives. Ranks that
/// have a GPU each use NCCL if it is compiled in (DSPP_WITH_NCCL=1, kernels/nccl.cuh, -lnccl): processes must, threads
/// do if there are enough. Else the host's memory moves what they send.
template <>
struct DeviceRank<Cuda> {
  CudaThread thread;  // first: what follows is on its GPU
  CudaMemory memory;
  Pool pool;
  AnyCommunicator host;
#if DSPP_HAS_NCCL()
  std::optional<NcclWorld> nccl;  // last: ends before its memory
#endif

  DeviceRank(Size limit_bytes, const RankGroups& of_host)
      : thread(of_host.world.rank(), detail::rank_on_machine(of_host)),
        pool(limit_bytes, &memory),
        host(of_host.world) {}
  static int devices() {
    return CudaMemory::gpus();
  }
  static Size memory_bytes(int device) {
    return CudaMemory::free_bytes(device);
  }
  Groups<Cuda> groups(const RankGroups& of_host) {
#if DSPP_HAS_NCCL()
    const bool shared = of_host.world.get_if<Threads>() != nullptr && CudaMemory::gpus() < of_host.world.size();
    if (!shared) {
      const RankGroups& all = nccl.emplace(of_host, memory).groups();
      host = nccl->host();
      return {all.world, all.replicas, all.along, all.node_replicas, all.across_nodes};
    }
#endif
    const bool has_one_gpu = of_host.world.get_if<Threads>() != nullptr && CudaMemory::gpus() == 1;
    if (of_host.world.size() > 1 && !has_one_gpu) {
      detail::require_like_gpus(of_host.world, thread.gpu());
      if (of_host.world.rank() == 0)
        std::fputs(DSPP_HAS_NCCL() ? "dspp: ranks exchange through the host's memory, which is slow: NCCL needs a GPU "
                                     "for each. Start as many ranks as there are GPUs.\n"
                                   : "dspp: ranks exchange through the host's memory, which is slow: NCCL is not "
                                     "compiled in. See docs/cuda.md, NCCL.\n",
                   stderr);
    }
    Groups<Cuda> groups{on_device(of_host.world), on_device(of_host.replicas)};
    for (Axis axis : all_axes) groups.along[axis] = on_device(of_host[axis]);
    groups.node_replicas = on_device(of_host.node_replicas);
    groups.across_nodes = on_device(of_host.across_nodes);
    return groups;
  }
  AnyCommunicator* host_group() {
    return &host;
  }
#if DSPP_HAS_NCCL()
  void end() {
    if (nccl) nccl->end();
  }
#endif

 private:
  struct Copy {
    CudaMemory* memory;
    void operator()(void* to, const void* from, Size bytes) const {
      memory->copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    }
  };

  AnyCommunicator on_device(const AnyCommunicator& of_host) {
    if (of_host.size() == 1) return AnyCommunicator(SelfOn<Copy>(Copy{&memory}));
    const Threads* const threads = of_host.get_if<Threads>();
    if (threads != nullptr && CudaMemory::gpus() == 1 && of_host.size() <= most_ranks_on_gpu)
      return AnyCommunicator(threads->on_device(cuda_share(memory)));
    return AnyCommunicator(StagedCommunicator<CudaMemory>(of_host, memory));
  }
};

}  // namespace dspp
