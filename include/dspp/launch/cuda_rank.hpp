// SPDX-License-Identifier: Apache-2.0
/// A rank on a GPU: its memory, and collectives through the host's.
#pragma once

#include <deque>
#include <exception>
#include <initializer_list>
#include <utility>
#include <vector>

#include <dspp/comm/any_communicator.hpp>
#include <dspp/cuda/device.hpp>
#include <dspp/launch/device_rank.hpp>

namespace dspp {

/// A communicator of a GPU's memory over one of the host's: elements are copied to the host at issue, which waits for
/// the stream, and back at completion. With the host's sums, hence its bits, between any ranks that have one: threads
/// that share a GPU, or processes.
class StagedCommunicator {
 public:
  StagedCommunicator(AnyCommunicator host, CudaMemory& memory) : host_(std::move(host)), memory_(&memory) {}

  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }
  SumOrder sum_order() const { return host_.sum_order(); }
  const Traffic& traffic() const { return host_.traffic(); }
  void barrier(CallSite site = CallSite::here()) { host_.barrier(site); }

  Pending<> start_all_reduce(Buffer x, PurposeAt p) {
    Operation& staged = begin();
    const Buffer on_host = both(staged, x);
    return issue(staged, host_.start_all_reduce(on_host, p));
  }
  Pending<> start_reduce_scatter(ConstBuffer a, Buffer y, PurposeAt p) {
    Operation& staged = begin();
    const ConstBuffer from = input(staged, a);
    return issue(staged, host_.start_reduce_scatter(from, output(staged, y), p));
  }
  Pending<> start_all_gather(ConstBuffer a, Buffer y, PurposeAt p) {
    Operation& staged = begin();
    const ConstBuffer from = input(staged, a);
    return issue(staged, host_.start_all_gather(from, output(staged, y), p));
  }
  Pending<> start_all_to_all(ConstBuffer a, Buffer y, const PartCounts& parts, PurposeAt p) {
    Operation& staged = begin();
    const ConstBuffer from = input(staged, a);
    return issue(staged, host_.start_all_to_all(from, output(staged, y), parts, p));
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p) {
    Operation& staged = begin();
    const Buffer on_host = both(staged, x);
    return issue(staged, host_.start_broadcast(on_host, root, p));
  }
  Pending<> start_send(ConstBuffer a, int to, PurposeAt p) {
    Operation& staged = begin();
    return issue(staged, host_.start_send(input(staged, a), to, p));
  }
  Pending<> start_receive(Buffer y, int from, PurposeAt p) {
    Operation& staged = begin();
    return issue(staged, host_.start_receive(output(staged, y), from, p));
  }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
    Operation& staged = begin();
    const auto on_host = staged_pairs(staged, pairs);
    return issue(staged, host_.start_reduce_scatter(std::span<const ScatterPair>(on_host), p));
  }
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
    Operation& staged = begin();
    const auto on_host = staged_pairs(staged, pairs);
    return issue(staged, host_.start_all_gather(std::span<const GatherPair>(on_host), p));
  }

 private:
  struct Copy {
    Buffer to;
    std::vector<std::byte> host;
  };
  struct Operation {
    std::uint64_t ticket = 0;
    std::deque<std::vector<std::byte>> inputs;
    std::deque<Copy> outputs;  // whose host memory does not move
    Pending<> pending;
  };

  Operation& begin() { return under_way_.emplace_back(); }
  static std::vector<std::byte> room(Size bytes) { return std::vector<std::byte>(static_cast<std::size_t>(bytes)); }
  void fetch(std::byte* to, const ConstBuffer& x) {
    if (x.count > 0) memory_->to_host(to, static_cast<const std::byte*>(x.data), x.bytes());
  }
  ConstBuffer input(Operation& staged, const ConstBuffer& x) {
    auto& host = staged.inputs.emplace_back(room(x.bytes()));
    fetch(host.data(), x);
    return {host.data(), x.count, x.type};
  }
  Buffer output(Operation& staged, const Buffer& x) {
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
    for (const Pair& pair : pairs) on_host.push_back({input(staged, pair.in), output(staged, pair.out)});
    return on_host;
  }

  Pending<> issue(Operation& staged, Pending<> pending) {
    staged.pending = std::move(pending);
    staged.ticket = ++tickets_;
    static constexpr detail::Completion completion{
        [](void* who, std::uint64_t ticket) { static_cast<StagedCommunicator*>(who)->complete(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<StagedCommunicator*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, tickets_);
  }
  /// Completes the operations up to that one, in order.
  void complete(std::uint64_t ticket) {
    while (!under_way_.empty() && under_way_.front().ticket <= ticket) {
      Operation operation = std::move(under_way_.front());
      under_way_.pop_front();
      operation.pending.wait();
      for (const Copy& copy : operation.outputs)
        memory_->from_host(static_cast<std::byte*>(copy.to.data), copy.host.data(), copy.to.bytes());
    }
  }
  void drop(std::uint64_t ticket) noexcept {
    try {
      if (std::uncaught_exceptions() > 0)
        std::erase_if(under_way_, [&](const Operation& operation) { return operation.ticket == ticket; });
      else
        complete(ticket);
    } catch (...) {  // the group has failed and throws the error to the next caller
    }
  }

  AnyCommunicator host_;
  CudaMemory* memory_;
  std::deque<Operation> under_way_;
  std::uint64_t tickets_ = 0;
};

template <>
struct DeviceRank<Cuda> {
  CudaMemory memory;
  Pool pool;
  AnyCommunicator host;

  DeviceRank(Size limit_bytes, const RankGroups& of_host) : pool(limit_bytes, &memory), host(of_host.world) {}
  Groups<Cuda> groups(const RankGroups& of_host) {
    const auto staged = [&](const AnyCommunicator& group) {
      return AnyCommunicator(StagedCommunicator(group, memory));
    };
    Groups<Cuda> groups{staged(of_host.world), staged(of_host.replicas)};
    for (Axis axis : all_axes) groups.along[axis] = staged(of_host[axis]);
    return groups;
  }
  AnyCommunicator* host_group() { return &host; }
};

}  // namespace dspp
