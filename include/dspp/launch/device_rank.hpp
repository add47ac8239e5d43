// SPDX-License-Identifier: Apache-2.0
/// One rank's part of a device: its memory and its transports.
#pragma once

#include <unistd.h>

#include <type_traits>

#include <dspp/comm/threads/world.hpp>
#include <dspp/launch/world.hpp>

namespace dspp {

namespace detail {
/// The rank's number among those of its machine: virtual nodes of thread ranks are one machine.
inline int rank_on_machine(const RankGroups& of_host) {
  return of_host.world.get_if<Threads>() ? of_host.world.rank() : of_host.node.local_rank;
}
}  // namespace detail

/// Made by run() for each rank, on the rank's thread, for as long as the program runs. A device specialises it with a
/// Pool named `pool`, the transports of its memory, and a communicator of all ranks for host memory, null if it is the
/// same; and, where an error may come after the last value that the host reads, with end(), which throws it once the
/// program has returned. For what a program asks before it starts ranks: devices(), of this machine, of which the
/// machine's rank r has number r modulo them, and memory_bytes(number), which ranks may take of one.
template <Device D>
struct DeviceRank {
  static_assert(std::is_same_v<D, PaperOf<D>>,
                "dspp: run needs a DeviceRank of the policy's device, but none is included. Include "
                "<dspp/launch/cuda_rank.hpp> for Cuda, or specialise DeviceRank for a device of your own.");
};

template <>
struct DeviceRank<Cpu> {
  Pool pool;

  DeviceRank(Size limit_bytes, const RankGroups&) : pool(limit_bytes) {}
  Groups<Cpu> groups(const RankGroups& of_host) {
    return {of_host.world, of_host.replicas, of_host.along, of_host.node_replicas, of_host.across_nodes};
  }
  AnyCommunicator* host_group() { return nullptr; }

  static int devices() { return 1; }
  static Size memory_bytes(int) {
    return static_cast<Size>(sysconf(_SC_PHYS_PAGES)) * static_cast<Size>(sysconf(_SC_PAGESIZE));
  }
};

}  // namespace dspp
