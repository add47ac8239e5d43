// SPDX-License-Identifier: Apache-2.0
/// A communicator that plans its traffic by formula, around another one or on paper.
#pragma once

#include <concepts>
#include <utility>

#include <dspp/comm/check.hpp>
#include <dspp/comm/communicator.hpp>

namespace dspp {

/// Acts as rank r of N with that tier of sums and does nothing: what a Recorder wraps on paper. Literal.
class Paper {
 public:
  constexpr Paper() = default;
  constexpr Paper(int rank, int size, SumOrder order = SumOrder::rank) : rank_(rank), size_(size), order_(order) {
    detail::check_rank(rank, size);
  }

  constexpr int rank() const { return rank_; }
  constexpr int size() const { return size_; }
  constexpr SumOrder sum_order() const { return size_ == 1 ? SumOrder::exact : order_; }
  constexpr Pending<> start_all_reduce(Buffer, PurposeAt) { return {}; }
  constexpr Pending<> start_reduce_scatter(ConstBuffer, Buffer, PurposeAt) { return {}; }
  constexpr Pending<> start_all_gather(ConstBuffer, Buffer, PurposeAt) { return {}; }
  constexpr Pending<> start_all_to_all(ConstBuffer, Buffer, const PartCounts&, PurposeAt) { return {}; }
  constexpr Pending<> start_broadcast(Buffer, int, PurposeAt) { return {}; }
  constexpr Pending<> start_send(ConstBuffer, int, PurposeAt) { return {}; }
  constexpr Pending<> start_receive(Buffer, int, PurposeAt) { return {}; }
  constexpr Pending<> start_reduce_scatter(std::span<const ScatterPair>, PurposeAt) { return {}; }
  constexpr Pending<> start_all_gather(std::span<const GatherPair>, PurposeAt) { return {}; }
  constexpr void barrier(CallSite = {}) {}
  constexpr const Traffic& traffic() const { return nothing; }
  constexpr bool async_progress(Size) const { return true; }

 private:
  static constexpr Traffic nothing{};

  int rank_ = 0;
  int size_ = 1;
  SumOrder order_ = SumOrder::rank;
};

static_assert(Communicator<Paper>);

/// Forwards every operation to `C` and adds to traffic() what it must move, from the arguments alone.
///
///   Recorder<> paper(r, n);                    rank r of n on paper: a literal type, for constant expressions
///   Recorder<Threads> checked(communicator);   traffic() is planned, inner().traffic() is counted: they must agree
///
/// A value: copies count their own traffic. It checks the arguments as the moving communicators do and never reads
/// through a data pointer.
template <Communicator C = Paper>
class Recorder {
 public:
  constexpr Recorder() = default;
  constexpr explicit Recorder(C inner) : inner_(std::move(inner)) {}
  constexpr Recorder(int rank, int size, SumOrder order = SumOrder::rank) requires std::same_as<C, Paper>
      : inner_(rank, size, order) {}

  constexpr int rank() const { return inner_.rank(); }
  constexpr int size() const { return inner_.size(); }
  constexpr SumOrder sum_order() const { return inner_.sum_order(); }

  constexpr Pending<> start_all_reduce(Buffer x, PurposeAt purpose) {
    detail::check_all_reduce(x);
    Pending<> pending = inner_.start_all_reduce(x, purpose);
    const Size own = x.count * (rank() + 1) / size() - x.count * rank() / size();
    const Size elements = own * (size() - 1) + (x.count - own);
    traffic_.count(Collective::all_reduce, purpose, elements * bytes_of(x.type));
    return pending;
  }

  constexpr Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose) {
    detail::check_reduce_scatter(in, out, size());
    Pending<> pending = inner_.start_reduce_scatter(in, out, purpose);
    traffic_.count(Collective::reduce_scatter, purpose, out.bytes() * (size() - 1));
    return pending;
  }

  constexpr Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt purpose) {
    detail::check_all_gather(in, out, size());
    Pending<> pending = inner_.start_all_gather(in, out, purpose);
    traffic_.count(Collective::all_gather, purpose, in.bytes() * (size() - 1));
    return pending;
  }

  constexpr Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt purpose) {
    detail::check_all_to_all(in, out, parts, size());
    const Size own = parts.equal() ? out.count / size() : parts.received[static_cast<std::size_t>(rank())];
    Pending<> pending = inner_.start_all_to_all(in, out, parts, purpose);
    traffic_.count(Collective::all_to_all, purpose, (out.count - own) * bytes_of(out.type));
    return pending;
  }

  constexpr Pending<> start_broadcast(Buffer x, int root, PurposeAt purpose) {
    detail::check_broadcast(x, root, size());
    Pending<> pending = inner_.start_broadcast(x, root, purpose);
    traffic_.count(Collective::broadcast, purpose, rank() == root ? 0 : x.bytes());
    return pending;
  }

  constexpr Pending<> start_send(ConstBuffer in, int to, PurposeAt purpose) {
    detail::check_send(in, to, rank(), size());
    Pending<> pending = inner_.start_send(in, to, purpose);
    traffic_.count(Collective::send, purpose, 0);
    return pending;
  }

  constexpr Pending<> start_receive(Buffer out, int from, PurposeAt purpose) {
    detail::check_receive(out, from, rank(), size());
    Pending<> pending = inner_.start_receive(out, from, purpose);
    traffic_.count(Collective::send, purpose, out.bytes());
    return pending;
  }

  constexpr Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose) {
    Size out_bytes = 0;
    for (const ScatterPair& p : pairs) {
      detail::check_reduce_scatter(p.in, p.out, size());
      out_bytes += p.out.bytes();
    }
    Pending<> pending = inner_.start_reduce_scatter(pairs, purpose);
    traffic_.count(Collective::reduce_scatter, purpose, out_bytes * (size() - 1));
    return pending;
  }

  constexpr Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt purpose) {
    Size in_bytes = 0;
    for (const GatherPair& p : pairs) {
      detail::check_all_gather(p.in, p.out, size());
      in_bytes += p.in.bytes();
    }
    Pending<> pending = inner_.start_all_gather(pairs, purpose);
    traffic_.count(Collective::all_gather, purpose, in_bytes * (size() - 1));
    return pending;
  }

  constexpr void barrier(CallSite site = CallSite::here()) {
    detail::barrier_at(inner_, site);
    traffic_.count(Collective::barrier, Purpose::scalar, 0);
  }

  constexpr bool async_progress(Size bytes) const { return detail::has_async_progress(inner_, bytes); }
  /// The planned traffic of this rank.
  constexpr const Traffic& traffic() const { return traffic_; }

  /// The wrapped communicator, whose own traffic() is the counted one.
  constexpr const C& inner() const { return inner_; }

 private:
  C inner_{};
  Traffic traffic_;
};

}  // namespace dspp
