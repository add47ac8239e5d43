// SPDX-License-Identifier: Apache-2.0
/// The laws of a communicator, whose memory is the host's, on one of a GPU's memory; and worlds of NCCL.
#pragma once

#include <algorithm>
#include <bit>
#include <exception>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <dspp/launch/nccl_rank.hpp>
#include <dspp/tensor/tensor.hpp>

#include <laws/worlds.hpp>

namespace dspp::laws {

/// Takes host memory: copies it to the device at issue, in blocks of a Pool, and what is written back when an operation
/// is waited for. Memory that an operation under way has is not copied again: the next one reads it on the device.
class OnDevice {
 public:
  OnDevice(AnyCommunicator c, Pool& pool) : c_(std::move(c)), pool_(&pool) {}

  int rank() const { return c_.rank(); }
  int size() const { return c_.size(); }
  SumOrder sum_order() const { return c_.sum_order(); }
  const Traffic& traffic() const { return c_.traffic(); }
  void barrier(CallSite site = CallSite::here()) { c_.barrier(site); }

  Pending<> start_all_reduce(Buffer x, PurposeAt p) {
    Operation& o = open();
    const Buffer on = both(o, x);
    return start(o, c_.start_all_reduce(on, p));
  }
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt p) {
    Operation& o = open();
    const auto [a, y] = pair(o, in, out);
    return start(o, c_.start_reduce_scatter(a, y, p));
  }
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt p) {
    Operation& o = open();
    const auto [a, y] = pair(o, in, out);
    return start(o, c_.start_all_gather(a, y, p));
  }
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt p) {
    Operation& o = open();
    const auto [a, y] = pair(o, in, out);
    return start(o, c_.start_all_to_all(a, y, parts, p));
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p) {
    Operation& o = open();
    const Buffer on = both(o, x);
    return start(o, c_.start_broadcast(on, root, p));
  }
  Pending<> start_send(ConstBuffer in, int to, PurposeAt p) {
    Operation& o = open();
    const ConstBuffer on = input(o, in);
    return start(o, c_.start_send(on, to, p));
  }
  Pending<> start_receive(Buffer out, int from, PurposeAt p) {
    Operation& o = open();
    const Buffer on = both(o, out);
    return start(o, c_.start_receive(on, from, p));
  }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
    Operation& o = open();
    std::vector<ScatterPair> on;
    for (const ScatterPair& one : pairs) {
      const auto [a, y] = pair(o, one.in, one.out);
      on.push_back({a, y});
    }
    return start(o, c_.start_reduce_scatter(std::span<const ScatterPair>(on), p));
  }
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
    Operation& o = open();
    std::vector<GatherPair> on;
    for (const GatherPair& one : pairs) {
      const auto [a, y] = pair(o, one.in, one.out);
      on.push_back({a, y});
    }
    return start(o, c_.start_all_gather(std::span<const GatherPair>(on), p));
  }

 private:
  using Block = Tensor<std::uint8_t, 1, Cuda>;
  struct Copy {
    const std::byte* host;
    Size bytes;
    std::shared_ptr<Block> block;
  };
  struct Operation {
    int exceptions = std::uncaught_exceptions();
    std::list<Copy> copies;
    std::list<std::pair<Buffer, const std::byte*>> results;  // on the host and on the device
    Pending<> pending;
  };

  CudaMemory& memory() const { return Cuda::memory_of(*pool_); }

  Operation& open() {
    if (!under_way_.empty() && !under_way_.back().second) under_way_.pop_back();  // of a call that threw
    under_way_.emplace_back(++tickets_, std::make_unique<Operation>());
    return *under_way_.back().second;
  }
  Pending<> start(Operation& o, Pending<> pending) {
    o.pending = std::move(pending);
    static constexpr dspp::detail::Completion completion{
        [](void* who, std::uint64_t ticket) { static_cast<OnDevice*>(who)->complete(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<OnDevice*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, tickets_);
  }

  /// Where it is on the device; null stays null.
  std::byte* place(Operation& o, const void* data, Size bytes) {
    if (data == nullptr || bytes <= 0) return static_cast<std::byte*>(const_cast<void*>(data));
    const auto* const at = static_cast<const std::byte*>(data);
    for (const auto& [ticket, other] : under_way_)
      for (const Copy& copy : other->copies)
        if (at >= copy.host && at + bytes <= copy.host + copy.bytes) {
          const Copy shared = copy;
          o.copies.push_back(shared);
          return reinterpret_cast<std::byte*>(shared.block->data()) + (at - shared.host);
        }
    const auto room =
        static_cast<Size>(std::bit_ceil(static_cast<std::size_t>(bytes)));  // few sizes: the Pool keeps them
    auto block = std::make_shared<Block>(Block::uninitialized(shape(room), *pool_));
    auto* const to = reinterpret_cast<std::byte*>(block->data());
    memory().from_host(to, data, bytes);
    o.copies.push_back({at, bytes, std::move(block)});
    return to;
  }
  ConstBuffer input(Operation& o, const ConstBuffer& x) { return {place(o, x.data, x.bytes()), x.count, x.type}; }
  Buffer both(Operation& o, const Buffer& x) {
    std::byte* const on = place(o, x.data, x.bytes());
    if (on != nullptr && x.count > 0) o.results.emplace_back(x, on);
    return {on, x.count, x.type};
  }
  /// The longer first: the other may be a slice of it. What overlaps otherwise does so on the device, too.
  std::pair<ConstBuffer, Buffer> pair(Operation& o, const ConstBuffer& in, const Buffer& out) {
    const auto *from = static_cast<const std::byte*>(in.data), *to = static_cast<const std::byte*>(out.data);
    if (from != nullptr && to != nullptr && from < to + out.bytes() && to < from + in.bytes())
      place(o, std::min(from, to), std::max(from + in.bytes(), to + out.bytes()) - std::min(from, to));
    if (in.bytes() < out.bytes()) {
      const Buffer y = both(o, out);
      return {input(o, in), y};
    }
    const ConstBuffer a = input(o, in);
    return {a, both(o, out)};
  }

  std::unique_ptr<Operation> taken(std::uint64_t ticket) {
    std::unique_ptr<Operation> one;
    for (auto at = under_way_.begin(); at != under_way_.end(); ++at)
      if (at->first == ticket) {
        one = std::move(at->second);
        under_way_.erase(at);
        break;
      }
    return one;
  }
  void complete(std::uint64_t ticket) {
    const std::unique_ptr<Operation> o = taken(ticket);
    o->pending.wait();
    for (const auto& [host, device] : o->results) memory().to_host(host.data, device, host.bytes());
  }
  void drop(std::uint64_t ticket) noexcept {
    for (const auto& [number, o] : under_way_)
      if (number == ticket && std::uncaught_exceptions() > o->exceptions) {
        taken(ticket);
        return;
      }
    try {
      complete(ticket);
    } catch (const Error&) {  // the communicator keeps it
    }
  }

  AnyCommunicator c_;
  Pool* pool_;
  std::list<std::pair<std::uint64_t, std::unique_ptr<Operation>>> under_way_;
  std::uint64_t tickets_ = 0;
};

/// f(rank, groups) for each of the ranks of a mesh, threads with a GPU each; in software there are as many.
template <class F>
void on_nccl_ranks(const Mesh& mesh, F f, NcclOptions options = {}, double timeout_seconds = 60,
                   int ranks_per_node = 0) {
#if !DSPP_HAS_NVCC()
  software_gpu::set_gpus(mesh.world_size());
#endif
  ThreadWorld world(mesh, {.timeout_seconds = timeout_seconds}, ranks_per_node);
  run_ranks(world.group(), [&](int rank) {
    NcclRank own(0, world.groups(rank), options);
    Groups<Cuda> groups = own.groups(world.groups(rank));
    f(own, groups);
  });
#if !DSPP_HAS_NVCC()
  software_gpu::set_gpus(1);
#endif
}

/// All ranks.
struct NcclOnDevice {
  static constexpr Size most_elements = 3001;
  template <class F>
  static void run(int ranks, F f) {
    on_nccl_ranks(Mesh(Degrees{.data = ranks}),
                  [&](NcclRank& own, Groups<Cuda>& groups) {
                    AnyCommunicator c(OnDevice(groups.world, own.pool));
                    f(c);
                  },
                  {.of_one_rank = true});
  }
};

/// Both groups along Data of 2 x ranks at once, by a split.
struct NcclSubgroups {
  template <class F>
  static void run(int ranks, F f) {
    on_nccl_ranks(Mesh(Degrees{.data = ranks, .tp = 2}), [&](NcclRank& own, Groups<Cuda>& groups) {
      AnyCommunicator c(OnDevice(groups.along[Axis::Data], own.pool));
      f(c);
    });
  }
};

}  // namespace dspp::laws
