// SPDX-License-Identifier: Apache-2.0
/// The host's communicator of ranks that also send messages between GPUs.
#pragma once

#include <exception>
#include <list>
#include <memory>
#include <utility>

#include <dspp/comm/communicator.hpp>
#include <kernels/nccl_line.cuh>

namespace dspp::detail {

/// The world's communicator for host memory. While an operation is waited for, messages of NCCL that wait for their
/// peer begin: in the host's own wait they would not, and the peer may come to the operation after the message only.
class NcclHost {
 public:
  explicit NcclHost(std::shared_ptr<NcclRank> rank) : rank_(std::move(rank)) {}

  int rank() const { return host().rank(); }
  int size() const { return host().size(); }
  SumOrder sum_order() const { return host().sum_order(); }
  const Traffic& traffic() const { return traffic_ = host().traffic() + barriers_; }
  void barrier(CallSite site = CallSite::here()) {
    rank_->barrier(rank_->world(), site);
    barriers_.count(Collective::barrier, Purpose::scalar, 0);
  }

  Pending<> start_all_reduce(Buffer x, PurposeAt p) { return start(host().start_all_reduce(x, p)); }
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt p) {
    return start(host().start_reduce_scatter(in, out, p));
  }
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt p) {
    return start(host().start_all_gather(in, out, p));
  }
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt p) {
    return start(host().start_all_to_all(in, out, parts, p));
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p) { return start(host().start_broadcast(x, root, p)); }
  Pending<> start_send(ConstBuffer in, int to, PurposeAt p) { return start(host().start_send(in, to, p)); }
  Pending<> start_receive(Buffer out, int from, PurposeAt p) { return start(host().start_receive(out, from, p)); }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
    return start(host().start_reduce_scatter(pairs, p));
  }
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
    return start(host().start_all_gather(pairs, p));
  }

 private:
  struct Operation {
    std::uint64_t ticket;
    int exceptions;  // std::uncaught_exceptions() at issue
    Pending<> pending;
  };

  AnyCommunicator& host() const { return rank_->world().communicator(); }

  Pending<> start(Pending<> of_host) {
    under_way_.push_back({++tickets_, std::uncaught_exceptions(), std::move(of_host)});
    static constexpr Completion completion{
        [](void* who, std::uint64_t ticket) { static_cast<NcclHost*>(who)->wait(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<NcclHost*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, tickets_);
  }
  Operation taken(std::uint64_t ticket) {
    auto at = under_way_.begin();
    while (at->ticket != ticket) ++at;
    Operation one = std::move(*at);
    under_way_.erase(at);
    return one;
  }
  void wait(std::uint64_t ticket) {
    Operation one = taken(ticket);
    rank_->await(one.pending);
  }
  void drop(std::uint64_t ticket) noexcept {
    Operation one = taken(ticket);
    if (std::uncaught_exceptions() > one.exceptions) return;  // abandons it
    try {
      rank_->await(one.pending);
    } catch (...) {  // kept for the next call
    }
  }

  std::shared_ptr<NcclRank> rank_;
  std::list<Operation> under_way_;
  std::uint64_t tickets_ = 0;
  Traffic barriers_;
  mutable Traffic traffic_;
};

static_assert(Communicator<NcclHost>);

}  // namespace dspp::detail
