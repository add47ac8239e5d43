// SPDX-License-Identifier: Apache-2.0
/// Collectives of a device's memory through the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/check.hpp>

namespace dspp {

/// A communicator of a device's memory over one of the host's. Memory M has to_host(host, from, bytes), which waits
/// for what was issued before, and from_host(to, host, bytes). Sums are the host's, hence their bits, between any ranks
/// that have a communicator: processes, or threads with several GPUs.
///
/// What an operation reads is copied to the host at issue, after completing those under way that write it or what this
/// one writes; what it writes is copied back at completion.
///
/// Cost     a wait for the device at issue, and copies of what moves, there and back
/// Memory   of the host, as much as an operation reads and writes, while it is under way
template <class M>
class StagedCommunicator {
 public:
  StagedCommunicator(AnyCommunicator host, M& memory) : host_(std::move(host)), memory_(&memory) {}

  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }
  SumOrder sum_order() const { return host_.sum_order(); }
  const Traffic& traffic() const { return host_.traffic(); }
  bool async_progress(Size bytes) const { return host_.async_progress(bytes); }
  void barrier(CallSite site = CallSite::here()) { host_.barrier(site); }

  Pending<> start_all_reduce(Buffer x, PurposeAt p) {
    detail::check_all_reduce(x);
    detail::check_memory("all_reduce", x.data, x.count);
    return start([&](Operation& staged) { return host_.start_all_reduce(both(staged, x), p); });
  }
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt p) {
    check_scatter(in, out);
    return start([&](Operation& staged) {
      const ConstBuffer from = input(staged, in);
      return host_.start_reduce_scatter(from, output(staged, out), p);
    });
  }
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt p) {
    check_gather(in, out);
    return start([&](Operation& staged) {
      const ConstBuffer from = input(staged, in);
      return host_.start_all_gather(from, output(staged, out), p);
    });
  }
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt p) {
    detail::check_all_to_all(in, out, parts, size());
    detail::check_memory("all_to_all", in.data, in.count);
    detail::check_memory("all_to_all", out.data, out.count);
    detail::check_apart("all_to_all", in, out);
    return start([&](Operation& staged) {
      const ConstBuffer from = input(staged, in);
      return host_.start_all_to_all(from, output(staged, out), parts, p);
    });
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p) {
    detail::check_broadcast(x, root, size());
    detail::check_memory("broadcast", x.data, x.count);
    return start([&](Operation& staged) { return host_.start_broadcast(both(staged, x), root, p); });
  }
  Pending<> start_send(ConstBuffer in, int to, PurposeAt p) {
    detail::check_send(in, to, rank(), size());
    detail::check_memory("send", in.data, in.count);
    return start([&](Operation& staged) { return host_.start_send(input(staged, in), to, p); });
  }
  Pending<> start_receive(Buffer out, int from, PurposeAt p) {
    detail::check_receive(out, from, rank(), size());
    detail::check_memory("receive", out.data, out.count);
    return start([&](Operation& staged) { return host_.start_receive(output(staged, out), from, p); });
  }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
    for (const ScatterPair& pair : pairs) check_scatter(pair.in, pair.out);
    return start([&](Operation& staged) {
      const auto on_host = staged_pairs(staged, pairs);
      return host_.start_reduce_scatter(std::span<const ScatterPair>(on_host), p);
    });
  }
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
    for (const GatherPair& pair : pairs) check_gather(pair.in, pair.out);
    return start([&](Operation& staged) {
      const auto on_host = staged_pairs(staged, pairs);
      return host_.start_all_gather(std::span<const GatherPair>(on_host), p);
    });
  }

 private:
  struct Copy {
    Buffer to;
    std::vector<std::byte> host;
  };
  struct Operation {
    std::uint64_t ticket = 0;
    int exceptions = 0;  // std::uncaught_exceptions() at issue
    std::list<std::vector<std::byte>> inputs;
    std::list<Copy> outputs;
    Pending<> pending;  // last: completes, or is abandoned, before its memory goes

    bool writes(const void* data, Size bytes) const {
      const auto* const begin = static_cast<const std::byte*>(data);
      for (const Copy& copy : outputs) {
        const auto* const own = static_cast<const std::byte*>(copy.to.data);
        if (begin < own + copy.to.bytes() && own < begin + bytes) return true;
      }
      return false;
    }
  };

  void check_scatter(const ConstBuffer& in, const Buffer& out) const {
    detail::check_reduce_scatter(in, out, size());
    detail::check_memory("reduce_scatter", in.data, in.count);
    detail::check_memory("reduce_scatter", out.data, out.count);
    detail::check_place("reduce_scatter", "out", "in", out, in, rank());
  }
  void check_gather(const ConstBuffer& in, const Buffer& out) const {
    detail::check_all_gather(in, out, size());
    detail::check_memory("all_gather", in.data, in.count);
    detail::check_memory("all_gather", out.data, out.count);
    detail::check_place("all_gather", "in", "out", in, out, rank());
  }

  static std::vector<std::byte> room(Size bytes) { return std::vector<std::byte>(static_cast<std::size_t>(bytes)); }
  void fetch(std::byte* to, const ConstBuffer& x) {
    complete_writers(x.data, x.bytes());
    if (x.count > 0) memory_->to_host(to, static_cast<const std::byte*>(x.data), x.bytes());
  }
  ConstBuffer input(Operation& staged, const ConstBuffer& x) {
    auto& host = staged.inputs.emplace_back(room(x.bytes()));
    fetch(host.data(), x);
    return {host.data(), x.count, x.type};
  }
  Buffer output(Operation& staged, const Buffer& x) {
    complete_writers(x.data, x.bytes());
    auto& copy = staged.outputs.emplace_back(Copy{x, room(x.bytes())});
    return {copy.host.data(), x.count, x.type};
  }
  Buffer both(Operation& staged, const Buffer& x) {
    const Buffer on_host = output(staged, x);
    fetch(static_cast<std::byte*>(on_host.data), x);
    return on_host;
  }
  template <class Pair>
  std::vector<Pair> staged_pairs(Operation& staged, std::span<const Pair> pairs) {
    std::vector<Pair> on_host;
    for (const Pair& pair : pairs) {
      const ConstBuffer from = input(staged, pair.in);
      on_host.push_back({from, output(staged, pair.out)});
    }
    return on_host;
  }

  /// issue(operation) fetches what it reads, and starts it on the host. If it throws, nothing is under way.
  template <class Issue>
  Pending<> start(const Issue& issue) {
    if (lost_) std::rethrow_exception(std::exchange(lost_, nullptr));
    std::list<Operation> one(1);
    one.front().exceptions = std::uncaught_exceptions();
    one.front().pending = issue(one.front());
    one.front().ticket = ++tickets_;
    under_way_.splice(under_way_.end(), one);
    static constexpr detail::Completion completion{
        [](void* who, std::uint64_t ticket) { static_cast<StagedCommunicator*>(who)->complete(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<StagedCommunicator*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, tickets_);
  }
  /// The operation of that ticket, no longer under way; none if it was completed for another.
  std::list<Operation> taken(std::uint64_t ticket) {
    std::list<Operation> one;
    for (auto at = under_way_.begin(); at != under_way_.end(); ++at)
      if (at->ticket == ticket) {
        one.splice(one.begin(), under_way_, at);
        break;
      }
    return one;
  }
  void complete(std::uint64_t ticket) {
    std::list<Operation> one = taken(ticket);
    if (one.empty()) return;
    one.front().pending.wait();
    for (const Copy& copy : one.front().outputs)
      if (copy.to.count > 0)
        memory_->from_host(static_cast<std::byte*>(copy.to.data), copy.host.data(), copy.to.bytes());
  }
  /// In order of issue.
  void complete_writers(const void* data, Size bytes) {
    for (auto at = under_way_.begin(); at != under_way_.end();)
      if (at->writes(data, bytes)) {
        complete(at->ticket);
        at = under_way_.begin();
      } else {
        ++at;
      }
  }
  void drop(std::uint64_t ticket) noexcept {
    for (Operation& operation : under_way_)
      if (operation.ticket == ticket && std::uncaught_exceptions() > operation.exceptions) {
        taken(ticket);  // and abandoned
        return;
      }
    try {
      complete(ticket);
    } catch (...) {
      lost_ = std::current_exception();  // for the next call
    }
  }

  AnyCommunicator host_;
  M* memory_;
  std::list<Operation> under_way_;
  std::uint64_t tickets_ = 0;
  std::exception_ptr lost_;
};

}  // namespace dspp
