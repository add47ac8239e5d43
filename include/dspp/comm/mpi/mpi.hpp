// SPDX-License-Identifier: Apache-2.0
/// Ranks as processes started by mpirun: Open MPI, MPICH. Only where the CMake target dspp::mpi is linked.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <memory>
#include <utility>

#include <dspp/comm/communicator.hpp>
#include <dspp/comm/mpi/rank.hpp>
#include <dspp/comm/posting.hpp>

namespace dspp {

/// One rank's handle on a group of MPI ranks; copies share it. Made by MpiWorld. In rank order, the default, sums have
/// the same bits as Threads: MPI moves bytes, dspp adds. Used by the thread that initialised MPI.
/// Cost: a fingerprint to every other rank of the group, then the bytes that traffic() counts; done in wait(), or
/// before by the rank's progress thread, if it has one. At most 16 operations of a group are in flight; one more
/// completes the oldest first. Under SumOrder::transport MPI's own collectives reduce and gather; fingerprints are
/// still sent, since MPI corrupts memory or hangs where ranks differ. traffic() then counts by formula.
/// Memory: up to four tiles of 256 KB from each other rank during a sum, kept for the next; with MPI's collectives two
/// tiles of 4 MB.
class Mpi : public detail::Posting<detail::MpiRank> {
  friend class MpiWorld;
  explicit Mpi(std::shared_ptr<detail::MpiRank> end) : Posting(std::move(end)) {}
};

static_assert(Communicator<Mpi>);

}  // namespace dspp

#endif  // DSPP_HAS_MPI()
