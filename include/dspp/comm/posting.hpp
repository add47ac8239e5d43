// SPDX-License-Identifier: Apache-2.0
/// The operations of a communicator whose ranks post what they call: arguments are checked, then published.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <dspp/comm/check.hpp>
#include <dspp/comm/communicator.hpp>
#include <dspp/comm/posted.hpp>

namespace dspp::detail {

/// A handle on one rank's `End` of a group, which has rank(), size(), sum_order(), traffic(), open() for the slot of
/// the next operation, publish() to begin it, and channel(from, to), an end of the group of two in which `from` sends
/// to `to`. Copies share the end. Used by one thread at a time.
template <class End>
class Posting {
 public:
  int rank() const;
  int size() const;
  SumOrder sum_order() const;
  Pending<> start_all_reduce(Buffer x, PurposeAt purpose);
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose);
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt purpose);
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt purpose);
  Pending<> start_broadcast(Buffer x, int root, PurposeAt purpose);
  Pending<> start_send(ConstBuffer in, int to, PurposeAt purpose);
  Pending<> start_receive(Buffer out, int from, PurposeAt purpose);
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose);
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt purpose);
  void barrier(CallSite site = CallSite::here());
  const Traffic& traffic() const;
  bool async_progress(Size bytes) const;

  /// A call whose data another transport moves: the ranks compare it, and wait for one another, as for one of the
  /// group's own. Of an all-to-all there is a pair for each rank. `peer` is that of a send or a receive, of which
  /// `root` is `sender` or `receiver`.
  Pending<> announce(Collective collective, PurposeAt purpose, int root, std::span<const PostedPair> pairs, int peer);
  /// Does what can be done without waiting. Throws the failure of the world, if there is one.
  void poll();
  /// Fails the world, and throws, if a rank has yet to call what this one waits for in any of its groups: names it.
  void expire();
  /// This rank failed with an error: every other rank gets it in an Error(aborted).
  void abort(const Error& error);
  double timeout_seconds() const;

 protected:
  explicit Posting(std::shared_ptr<End> end) : end_(std::move(end)) {}
  ~Posting() = default;
  Posting(const Posting&) = default;
  Posting(Posting&&) = default;
  Posting& operator=(const Posting&) = default;
  Posting& operator=(Posting&&) = default;
  End& end() const { return *end_; }

 private:
  std::shared_ptr<End> end_;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class End>
int Posting<End>::rank() const {
  return end_->rank();
}

template <class End>
int Posting<End>::size() const {
  return end_->size();
}

template <class End>
SumOrder Posting<End>::sum_order() const {
  return size() == 1 ? SumOrder::exact : end_->sum_order();
}

template <class End>
Pending<> Posting<End>::start_all_reduce(Buffer x, PurposeAt purpose) {
  check_all_reduce(x);
  check_memory("all_reduce", x.data, x.count);
  end_->open(Collective::all_reduce, purpose).pairs.push_back({x.data, x.data, x.count, x.type});
  return end_->publish();
}

template <class End>
Pending<> Posting<End>::start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose) {
  const ScatterPair pair{in, out};
  return start_reduce_scatter(std::span<const ScatterPair>(&pair, 1), purpose);
}

template <class End>
Pending<> Posting<End>::start_all_gather(ConstBuffer in, Buffer out, PurposeAt purpose) {
  const GatherPair pair{in, out};
  return start_all_gather(std::span<const GatherPair>(&pair, 1), purpose);
}

template <class End>
Pending<> Posting<End>::start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt purpose) {
  check_all_to_all(in, out, parts, size());
  check_apart("all_to_all", in, out);
  Posted& slot = end_->open(Collective::all_to_all, purpose);
  const Size element = bytes_of(in.type);
  const auto* from = static_cast<const std::byte*>(in.data);
  auto* to = static_cast<std::byte*>(out.data);
  for (int r = 0; r < size(); ++r) {
    const Size sent = parts.equal() ? in.count / size() : parts.sent[static_cast<std::size_t>(r)];
    const Size received = parts.equal() ? sent : parts.received[static_cast<std::size_t>(r)];
    slot.pairs.push_back({from, to, sent, in.type, received});
    from += sent * element;
    to += received * element;
  }
  return end_->publish();
}

template <class End>
Pending<> Posting<End>::start_broadcast(Buffer x, int root, PurposeAt purpose) {
  check_broadcast(x, root, size());
  check_memory("broadcast", x.data, x.count);
  end_->open(Collective::broadcast, purpose, root).pairs.push_back({x.data, x.data, x.count, x.type});
  return end_->publish();
}

template <class End>
Pending<> Posting<End>::start_send(ConstBuffer in, int to, PurposeAt purpose) {
  check_send(in, to, rank(), size());
  check_memory("send", in.data, in.count);
  End& channel = end_->channel(rank(), to);
  channel.open(Collective::send, purpose, sender).pairs.push_back({in.data, nullptr, in.count, in.type});
  return channel.publish();
}

template <class End>
Pending<> Posting<End>::start_receive(Buffer out, int from, PurposeAt purpose) {
  check_receive(out, from, rank(), size());
  check_memory("receive", out.data, out.count);
  End& channel = end_->channel(from, rank());
  channel.open(Collective::send, purpose, receiver).pairs.push_back({nullptr, out.data, out.count, out.type});
  return channel.publish();
}

template <class End>
Pending<> Posting<End>::start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose) {
  if (pairs.size() != 1) purpose.digest = nullptr;
  for (const ScatterPair& p : pairs) {
    check_reduce_scatter(p.in, p.out, size());
    check_place("reduce_scatter", "out", "in", p.out, p.in, rank());
  }
  Posted& slot = end_->open(Collective::reduce_scatter, purpose);
  for (const ScatterPair& p : pairs) slot.pairs.push_back({p.in.data, p.out.data, p.out.count, p.out.type});
  return end_->publish();
}

template <class End>
Pending<> Posting<End>::start_all_gather(std::span<const GatherPair> pairs, PurposeAt purpose) {
  for (const GatherPair& p : pairs) {
    check_all_gather(p.in, p.out, size());
    check_place("all_gather", "in", "out", p.in, p.out, rank());
  }
  Posted& slot = end_->open(Collective::all_gather, purpose);
  for (const GatherPair& p : pairs) slot.pairs.push_back({p.in.data, p.out.data, p.in.count, p.in.type});
  return end_->publish();
}

template <class End>
void Posting<End>::barrier(CallSite site) {
  end_->open(Collective::barrier, PurposeAt(Purpose::scalar, site));
  end_->publish().wait();
}

template <class End>
const Traffic& Posting<End>::traffic() const {
  return end_->traffic();
}

template <class End>
bool Posting<End>::async_progress(Size bytes) const {
  return end_->async_progress(bytes);
}

template <class End>
Pending<> Posting<End>::announce(Collective collective, PurposeAt purpose, int root, std::span<const PostedPair> pairs,
                                 int peer) {
  const bool sends = collective == Collective::send;
  End& end = !sends ? *end_ : root == sender ? end_->channel(rank(), peer) : end_->channel(peer, rank());
  Posted& slot = end.open(collective, purpose, root);
  slot.pairs.assign(pairs.begin(), pairs.end());
  slot.elsewhere = true;
  return end.publish();
}

template <class End>
void Posting<End>::poll() {
  end_->poll();
}

template <class End>
void Posting<End>::expire() {
  end_->expire();
}

template <class End>
void Posting<End>::abort(const Error& error) {
  end_->abort(error);
}

template <class End>
double Posting<End>::timeout_seconds() const {
  return end_->timeout_seconds();
}

}  // namespace dspp::detail
