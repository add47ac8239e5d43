// SPDX-License-Identifier: Apache-2.0
/// The group of one rank.
#pragma once

#include <cstring>

#include <dspp/comm/check.hpp>
#include <dspp/comm/communicator.hpp>

namespace dspp {

namespace detail {
struct HostCopy {
  void operator()(void* to, const void* from, Size bytes) const {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
};
}  // namespace detail

/// A group of one: a sum is its only summand, nothing moves between ranks, every operation is complete at issue.
/// Cost: reduce_scatter, all_gather and all_to_all copy in to out, by copy(to, from, bytes), unless they are the same
/// memory. A value: copies count their own traffic.
template <class Copy>
class SelfOn {
 public:
  constexpr explicit SelfOn(Copy copy = {}) : copy_(copy) {}

  constexpr int rank() const { return 0; }
  constexpr int size() const { return 1; }
  constexpr SumOrder sum_order() const { return SumOrder::exact; }

  constexpr Pending<> start_all_reduce(Buffer x, PurposeAt purpose) {
    detail::check_all_reduce(x);
    detail::check_memory("all_reduce", x.data, x.count);
    return enter(Collective::all_reduce, purpose);
  }

  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose) {
    const ScatterPair pair{in, out};
    return start_reduce_scatter(std::span<const ScatterPair>(&pair, 1), purpose);
  }

  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt purpose) {
    const GatherPair pair{in, out};
    return start_all_gather(std::span<const GatherPair>(&pair, 1), purpose);
  }

  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt purpose) {
    detail::check_all_to_all(in, out, parts, 1);
    detail::check_apart("all_to_all", in, out);
    copy(in, out);
    return enter(Collective::all_to_all, purpose);
  }

  constexpr Pending<> start_broadcast(Buffer x, int root, PurposeAt purpose) {
    detail::check_broadcast(x, root, 1);
    detail::check_memory("broadcast", x.data, x.count);
    return enter(Collective::broadcast, purpose);
  }

  Pending<> start_send(ConstBuffer in, int to, Purpose) {
    detail::check_send(in, to, 0, 1);  // always an error
    return {};
  }
  Pending<> start_receive(Buffer out, int from, Purpose) {
    detail::check_receive(out, from, 0, 1);
    return {};
  }

  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose) {
    for (const ScatterPair& p : pairs) {
      detail::check_reduce_scatter(p.in, p.out, 1);
      detail::check_place("reduce_scatter", "out", "in", p.out, p.in, 0);
    }
    for (const ScatterPair& p : pairs) copy(p.in, p.out);
    return enter(Collective::reduce_scatter, purpose);
  }

  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt purpose) {
    for (const GatherPair& p : pairs) {
      detail::check_all_gather(p.in, p.out, 1);
      detail::check_place("all_gather", "in", "out", p.in, p.out, 0);
    }
    for (const GatherPair& p : pairs) copy(p.in, p.out);
    return enter(Collective::all_gather, purpose);
  }

  constexpr void barrier(CallSite = {}) { traffic_.count(Collective::barrier, Purpose::scalar, 0); }

  constexpr const Traffic& traffic() const { return traffic_; }

 private:
  void copy(const ConstBuffer& in, const Buffer& out) const {
    if (in.data != out.data && in.count > 0) copy_(out.data, in.data, in.bytes());
  }

  constexpr Pending<> enter(Collective collective, PurposeAt purpose) {
    traffic_.count(collective, purpose, 0);
    return {};
  }

  Copy copy_;
  Traffic traffic_;
};

/// Of host memory.
using Self = SelfOn<detail::HostCopy>;

static_assert(Communicator<Self>);

}  // namespace dspp
