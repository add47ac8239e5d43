// SPDX-License-Identifier: Apache-2.0
/// Ranks as processes that connect by TCP, without MPI: as torchrun and cluster scripts start them.
#pragma once

#include <memory>
#include <utility>

#include <dspp/comm/communicator.hpp>
#include <dspp/comm/posting.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <dspp/comm/tcp/rank.hpp>
#endif

namespace dspp {

namespace detail {
class TcpRank;
}

/// One rank's handle on a group of TCP ranks; copies share it. Made by TcpWorld. Sums are in rank order, with the bits
/// of Threads. Used by one thread. At most 16 operations of a group are in flight; one more completes the oldest first.
///
/// Cost     a fingerprint to every other rank of the group, then for each tile a word from the receiver and the bytes
///          that traffic() counts; nothing is sent ahead, so a tile takes a round trip more than its bytes
/// Memory   tiles of 256 KB from each other rank during a sum, kept for the next
class Tcp : public detail::Posting<detail::TcpRank> {
  friend class TcpWorld;
  explicit Tcp(std::shared_ptr<detail::TcpRank> end) : Posting(std::move(end)) {}
};

static_assert(Communicator<Tcp>);

#if !DSPP_HAS_DEFINITIONS()
extern template class detail::Posting<detail::TcpRank>;
#endif

}  // namespace dspp
