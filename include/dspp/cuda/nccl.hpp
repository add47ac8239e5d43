// SPDX-License-Identifier: Apache-2.0
/// Collectives between GPUs by NCCL. Declared for any compiler; defined in kernels/nccl.cuh.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include <dspp/comm/communicator.hpp>
#include <dspp/comm/rank_groups.hpp>
#include <dspp/cuda/memory.hpp>

namespace dspp {

namespace detail {
class NcclGroup;
class NcclRank;
}  // namespace detail

/// One rank's handle on a group of GPUs; copies share it. Made by NcclWorld. Used by the rank's thread.
///
/// An operation is issued to the group's own stream, after what the rank's stream has at that point; wait() makes the
/// rank's stream wait for it, and the host waits for nothing. What a rank calls is announced on the host's group: ranks
/// that differ, are late or have left are named, where NCCL would wait for ever. A failure of NCCL is found by the next
/// call, or while the host waits for the GPU: all of the rank's communicators are then aborted.
///
/// Sums are NCCL's: the same bits on every rank and in every run of the same world; bf16 and f16 are rounded at every
/// addition (SumOrder::rounding). A digest of a sum is not made. traffic() counts by formula.
///
/// Cost     an announcement (comm/host_group.hpp), two events and NCCL's launch; a list of pairs is one launch
/// Memory   NCCL's, of every communicator: no plan counts it
class Nccl {
 public:
  int rank() const;
  int size() const;
  SumOrder sum_order() const;
  Pending<> start_all_reduce(Buffer x, PurposeAt purpose);
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose);
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt purpose);
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt purpose);
  Pending<> start_broadcast(Buffer x, int root, PurposeAt purpose);
  /// The first message between two ranks in a direction makes a communicator of the two, of that direction's own:
  /// wait() then waits, on the host, until the other rank has called its end.
  Pending<> start_send(ConstBuffer in, int to, PurposeAt purpose);
  Pending<> start_receive(Buffer out, int from, PurposeAt purpose);
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose);
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt purpose);
  void barrier(CallSite site = CallSite::here());
  const Traffic& traffic() const;
  bool async_progress(Size) const { return true; }

 private:
  friend class NcclWorld;
  explicit Nccl(std::shared_ptr<detail::NcclGroup> group) : group_(std::move(group)) {}

  std::shared_ptr<detail::NcclGroup> group_;
};

static_assert(Communicator<Nccl>);

struct NcclOptions {
  /// Registers every block of the rank's memory, once, with every communicator. NCCL then needs the same offsets in the
  /// blocks of all ranks, which programs with ragged shapes do not have.
  bool register_buffers = false;
  bool of_one_rank = false;  ///< uses NCCL in a world of one rank, too
};

/// The groups of a mesh whose ranks have a GPU each: the calling thread's. Every rank makes one, at the same point.
/// Groups of one rank copy. At its end the communicators are destroyed or, after a failure, aborted.
///
/// Throws   on every rank: Error(placement) that names two ranks on one GPU; Error(usage) for a library of NCCL that
///          is older than the header it was compiled with, or another on another rank; what NCCL says
class NcclWorld {
 public:
  NcclWorld(const RankGroups& host, CudaMemory& memory, NcclOptions options = {});
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  /// Of this rank.
  const RankGroups& groups() const { return groups_; }

  /// All ranks, for host memory: while one of its operations is waited for, messages between GPUs go on.
  AnyCommunicator host();

  /// Every rank has called its last operation: waits for what is under way, and ends the communicators. Throws what
  /// failed since the host last read a value, which the destructor does not.
  void end();

 private:
  std::shared_ptr<detail::NcclRank> rank_;
  RankGroups groups_;
};

}  // namespace dspp
