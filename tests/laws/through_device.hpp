// SPDX-License-Identifier: Apache-2.0
/// A communicator of a device's memory as one of the host's, so that the laws run on it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/check.hpp>
#include <dspp/cuda/memory.hpp>

namespace dspp::laws {

/// Host memory that an operation touches has a mirror on the device for as long as any operation is under way: what one
/// writes there the next one reads there. What an operation wrote is copied back when it is complete.
class ThroughDevice {
 public:
  ThroughDevice(AnyCommunicator on_device, CudaMemory& memory) : inner_(std::move(on_device)), memory_(&memory) {}
  ThroughDevice(ThroughDevice&&) = default;  // while nothing is under way

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  SumOrder sum_order() const { return inner_.sum_order(); }
  const Traffic& traffic() const { return inner_.traffic(); }
  void barrier(CallSite site = CallSite::here()) { inner_.barrier(site); }

  Pending<> start_all_reduce(Buffer x, PurposeAt p) {
    dspp::detail::check_all_reduce(x);
    dspp::detail::check_memory("all_reduce", x.data, x.count);
    mirror({}, {x});
    return start({x}, inner_.start_all_reduce(on_device(x), p));
  }
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt p) {
    const ScatterPair pair{in, out};
    return start_reduce_scatter(std::span<const ScatterPair>(&pair, 1), p);
  }
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt p) {
    const GatherPair pair{in, out};
    return start_all_gather(std::span<const GatherPair>(&pair, 1), p);
  }
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt p) {
    dspp::detail::check_all_to_all(in, out, parts, size());
    dspp::detail::check_memory("all_to_all", in.data, in.count);
    dspp::detail::check_memory("all_to_all", out.data, out.count);
    dspp::detail::check_apart("all_to_all", in, out);
    mirror({in}, {out});
    return start({out}, inner_.start_all_to_all(on_device(in), on_device(out), parts, p));
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p) {
    dspp::detail::check_broadcast(x, root, size());
    dspp::detail::check_memory("broadcast", x.data, x.count);
    mirror({}, {x});
    return start({x}, inner_.start_broadcast(on_device(x), root, p));
  }
  Pending<> start_send(ConstBuffer in, int to, PurposeAt p) {
    dspp::detail::check_send(in, to, rank(), size());
    dspp::detail::check_memory("send", in.data, in.count);
    mirror({in}, {});
    return start({}, inner_.start_send(on_device(in), to, p));
  }
  Pending<> start_receive(Buffer out, int from, PurposeAt p) {
    dspp::detail::check_receive(out, from, rank(), size());
    dspp::detail::check_memory("receive", out.data, out.count);
    mirror({}, {out});
    return start({out}, inner_.start_receive(on_device(out), from, p));
  }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
    for (const ScatterPair& pair : pairs) {
      dspp::detail::check_reduce_scatter(pair.in, pair.out, size());
      dspp::detail::check_memory("reduce_scatter", pair.in.data, pair.in.count);
      dspp::detail::check_memory("reduce_scatter", pair.out.data, pair.out.count);
      dspp::detail::check_place("reduce_scatter", "out", "in", pair.out, pair.in, rank());
    }
    const auto mirrored = mirrored_pairs(pairs);
    return start(outputs_of(pairs), pairs.size() == 1
                                        ? inner_.start_reduce_scatter(mirrored[0].in, mirrored[0].out, p)
                                        : inner_.start_reduce_scatter(std::span<const ScatterPair>(mirrored), p));
  }
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
    for (const GatherPair& pair : pairs) {
      dspp::detail::check_all_gather(pair.in, pair.out, size());
      dspp::detail::check_memory("all_gather", pair.in.data, pair.in.count);
      dspp::detail::check_memory("all_gather", pair.out.data, pair.out.count);
      dspp::detail::check_place("all_gather", "in", "out", pair.in, pair.out, rank());
    }
    const auto mirrored = mirrored_pairs(pairs);
    return start(outputs_of(pairs), pairs.size() == 1
                                        ? inner_.start_all_gather(mirrored[0].in, mirrored[0].out, p)
                                        : inner_.start_all_gather(std::span<const GatherPair>(mirrored), p));
  }

 private:
  struct Mirror {
    std::byte* host;
    Size bytes;
    std::byte* device;
  };
  struct Operation {
    std::uint64_t ticket;
    std::vector<Buffer> outputs;
    Pending<> pending;
  };

  template <class B>
  static bool empty(const B& x) {
    return x.count <= 0 || x.data == nullptr;
  }

  /// Makes the mirrors of memory that has none yet. Where it would grow one, nothing may be under way.
  void mirror(std::vector<ConstBuffer> in, const std::vector<Buffer>& out) {
    for (const Buffer& x : out) in.push_back({x.data, x.count, x.type});
    std::erase_if(in, [](const ConstBuffer& x) { return empty(x); });
    const auto begin_of = [](const ConstBuffer& x) { return static_cast<std::byte*>(const_cast<void*>(x.data)); };
    std::sort(in.begin(), in.end(), [&](const auto& a, const auto& b) { return begin_of(a) < begin_of(b); });
    std::vector<Mirror> wanted;
    for (const ConstBuffer& x : in) {
      std::byte* const begin = begin_of(x);
      if (!wanted.empty() && begin < wanted.back().host + wanted.back().bytes)
        wanted.back().bytes = std::max<Size>(wanted.back().bytes, begin + x.bytes() - wanted.back().host);
      else
        wanted.push_back({begin, x.bytes(), nullptr});
    }
    const auto has = [](const Mirror& m, const Mirror& w) {
      return m.host <= w.host && w.host + w.bytes <= m.host + m.bytes;
    };
    const auto meets = [](const Mirror& m, const Mirror& w) {
      return m.host < w.host + w.bytes && w.host < m.host + m.bytes;
    };
    for (const Mirror& w : wanted)
      if (std::any_of(mirrors_.begin(), mirrors_.end(), [&](auto& m) { return meets(m, w) && !has(m, w); }))
        while (!under_way_.empty()) complete(under_way_.front().ticket);
    for (Mirror& w : wanted) {
      if (std::any_of(mirrors_.begin(), mirrors_.end(), [&](auto& m) { return has(m, w); })) continue;
      w.device = room(w.bytes);
      memory_->from_host(w.device, w.host, w.bytes);
      mirrors_.push_back(w);
    }
  }
  std::byte* device_address(const void* host) const {
    const auto* const at = static_cast<const std::byte*>(host);
    for (const Mirror& m : mirrors_)
      if (m.host <= at && at < m.host + m.bytes) return m.device + (at - m.host);
    return nullptr;
  }
  template <class B>
  B on_device(B x) const {
    if (!empty(x)) x.data = device_address(x.data);
    return x;
  }
  template <class Pair>
  std::vector<Pair> mirrored_pairs(std::span<const Pair> pairs) {
    std::vector<ConstBuffer> in;
    for (const Pair& pair : pairs) in.push_back(pair.in);
    mirror(std::move(in), outputs_of(pairs));
    std::vector<Pair> mirrored;
    for (const Pair& pair : pairs) mirrored.push_back({on_device(pair.in), on_device(pair.out)});
    return mirrored;
  }
  template <class Pair>
  static std::vector<Buffer> outputs_of(std::span<const Pair> pairs) {
    std::vector<Buffer> outputs;
    for (const Pair& pair : pairs) outputs.push_back(pair.out);
    return outputs;
  }

  Pending<> start(std::vector<Buffer> outputs, Pending<> pending) {
    under_way_.push_back({++tickets_, std::move(outputs), std::move(pending)});
    static constexpr dspp::detail::Completion completion{
        [](void* who, std::uint64_t ticket) { static_cast<ThroughDevice*>(who)->complete(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<ThroughDevice*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, tickets_);
  }
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
    const std::list<Operation> one = taken(ticket);
    if (one.empty()) return;
    const_cast<Operation&>(one.front()).pending.wait();
    for (const Buffer& x : one.front().outputs)
      if (!empty(x)) memory_->to_host(x.data, device_address(x.data), x.bytes());
    forget();
  }
  void drop(std::uint64_t ticket) noexcept {
    try {
      if (std::uncaught_exceptions() == 0) return complete(ticket);
    } catch (const Error&) {  // the group keeps it
    }
    taken(ticket).clear();
    forget();
  }
  void forget() {
    if (!under_way_.empty()) return;
    mirrors_.clear();
    rooms_[1].memory.reset();
    for (Room& r : rooms_) r.used = 0;
  }
  struct Room {
    Size bytes, used = 0;
    std::shared_ptr<std::byte> memory{};
  };
  /// Until nothing is under way.
  std::byte* room(Size bytes) {
    for (Room& r : rooms_) {
      if (r.used + bytes > r.bytes) continue;
      if (!r.memory) r.memory = {memory_->take(r.bytes), [m = memory_, &r](std::byte* at) { m->give(at, r.bytes); }};
      return r.memory.get() + std::exchange(r.used, r.used + (bytes + 15) / 16 * 16);
    }
    fail(ErrorCode::usage, "dspp: a law needs at most 16 MiB under way, but has more. Raise the rooms of mirrors.");
  }

  AnyCommunicator inner_;
  CudaMemory* memory_;
  std::vector<Room> rooms_{{Size{256} << 10}, {Size{16} << 20}};  // the large one comes and goes
  std::vector<Mirror> mirrors_;
  std::list<Operation> under_way_;
  std::uint64_t tickets_ = 0;
};

}  // namespace dspp::laws
