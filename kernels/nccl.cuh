// SPDX-License-Identifier: Apache-2.0
/// The members of Nccl and NcclWorld, with NCCL's library (-lnccl), or its twin on the GPU in software.
#pragma once

#include <dspp/cuda/like_gpus.hpp>
#include <kernels/nccl_group.cuh>
#include <kernels/nccl_host.cuh>

namespace dspp {

namespace detail {

/// What each rank tells the others before they connect.
struct NcclCard {
  std::int32_t library = 0, node = 0;
  std::array<char, 24> gpu{};  ///< its place on the bus
  GpuKind kind{};
};

/// "2.28.9"
inline std::string nccl_version_name(int code) {
  const int major = code < 10000 ? code / 1000 : code / 10000, rest = code < 10000 ? code % 1000 : code % 10000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

/// Throws   Error(usage) if the library cannot read what this header writes
inline int nccl_library() {
  int code = 0;
  if (ncclGetVersion(&code) != ncclSuccess || code < NCCL_VERSION_CODE)
    fail(ErrorCode::usage, "dspp: NCCL needs a library that is not older than the header " +
                               nccl_version_name(NCCL_VERSION_CODE) + " of this program, but " +
                               nccl_version_name(code) +
                               " was loaded. Look at LD_LIBRARY_PATH, or compile with that library's header.");
  return code;
}

/// The cards of all ranks, in rank order.
inline std::vector<NcclCard> nccl_cards(HostGroup& world, const NodePlace& place) {
  NcclCard own;
  own.node = world.is_of_threads() ? 0 : place.node;
  own.library = nccl_library();
  int gpu = 0;
  gpu::check({"find NCCL's GPU"}, cudaGetDevice(&gpu));
  gpu::check({"find NCCL's GPU"}, cudaDeviceGetPCIBusId(own.gpu.data(), static_cast<int>(own.gpu.size()), gpu));
  own.kind = kind_of_gpu(gpu);
  std::vector<NcclCard> cards(static_cast<std::size_t>(world.size()));
  constexpr Size bytes = sizeof(NcclCard);
  all_gather(world.communicator(), ConstBuffer(&own, bytes, ElementType::u8),
             Buffer{cards.data(), bytes * world.size(), ElementType::u8}, Purpose::check);
  return cards;
}

/// Throws   on every rank alike, for ranks that NCCL cannot connect
inline void check_nccl_cards(const std::vector<NcclCard>& cards) {
  const auto rank = [](std::size_t r) { return "rank " + std::to_string(r); };
  for (std::size_t r = 1; r < cards.size(); ++r) {
    if (cards[r].library != cards[0].library)
      fail(ErrorCode::usage, "dspp: NCCL needs one version on all ranks, but rank 0 loads " +
                                 nccl_version_name(cards[0].library) + " and " + rank(r) + " " +
                                 nccl_version_name(cards[r].library) + ". Install the same on all machines.");
    for (std::size_t s = 0; s < r; ++s)
      if (cards[r].node == cards[s].node && cards[r].gpu == cards[s].gpu)
        fail(ErrorCode::placement,
             "dspp: NCCL needs a GPU for each rank, but " + rank(s) + " and " + rank(r) + " are both on GPU " +
                 std::string(cards[r].gpu.data()) +
                 " of one machine. Start as many ranks there as it has GPUs; ranks that are threads "
                 "of one process can share one without NCCL, processes where dspp::cuda is configured with "
                 "DSPP_NCCL=OFF.");
  }
  std::vector<GpuKind> kinds;
  for (const NcclCard& card : cards) kinds.push_back(card.kind);
  require_like_gpus(kinds);
}

/// The world's communicator.
inline void open_nccl_world(NcclGroup& world) {
  ncclUniqueId id{};
  if (world.host().rank() == 0) world.check(ncclGetUniqueId(&id));
  broadcast(world.host().communicator(), Buffer{&id, sizeof id, ElementType::u8}, 0, Purpose::check);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  world.settle(ncclCommInitRankConfig(&world.comm, world.size(), id, world.host().rank(), &config));
}

/// That of a part of the world, at the same time as all others of its kind. Its ranks are numbered as the host's.
inline void split_nccl_world(NcclGroup& world, NcclGroup& part) {
  std::int32_t color = world.host().rank();
  broadcast(part.host().communicator(), buffer(&color, 1), 0, Purpose::check);  // the part's first rank
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  world.settle(ncclCommSplit(world.comm, color, part.host().rank(), &part.comm, &config));
  part.settle(ncclSuccess);
}

}  // namespace detail

DSPP_CUDA_INLINE int Nccl::rank() const {
  return group_->host().rank();
}

DSPP_CUDA_INLINE int Nccl::size() const {
  return group_->host().size();
}

DSPP_CUDA_INLINE SumOrder Nccl::sum_order() const {
  return size() == 1 ? SumOrder::exact : SumOrder::rounding;
}

DSPP_CUDA_INLINE const Traffic& Nccl::traffic() const {
  return group_->traffic();
}

DSPP_CUDA_INLINE Pending<> Nccl::start_all_reduce(Buffer x, PurposeAt purpose) {
  detail::check_all_reduce(x);
  detail::check_memory("all_reduce", x.data, x.count);
  detail::NcclGroup& g = *group_;
  g.open_call(Collective::all_reduce, purpose).pairs.push_back({x.data, x.data, x.count, x.type});
  const Size own = x.count * (rank() + 1) / size() - x.count * rank() / size();
  return g.start(purpose, (own * (size() - 1) + x.count - own) * bytes_of(x.type), [&] {
    if (g.comm == nullptr || x.count == 0) return ncclSuccess;
    return ncclAllReduce(x.data, x.data, static_cast<std::size_t>(x.count), detail::nccl_type(x.type), ncclSum, g.comm,
                         g.stream());
  });
}

DSPP_CUDA_INLINE Pending<> Nccl::start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose) {
  const ScatterPair pair{in, out};
  return start_reduce_scatter(std::span<const ScatterPair>(&pair, 1), purpose);
}

DSPP_CUDA_INLINE Pending<> Nccl::start_all_gather(ConstBuffer in, Buffer out, PurposeAt purpose) {
  const GatherPair pair{in, out};
  return start_all_gather(std::span<const GatherPair>(&pair, 1), purpose);
}

DSPP_CUDA_INLINE Pending<> Nccl::start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose) {
  for (const ScatterPair& p : pairs) {
    detail::check_reduce_scatter(p.in, p.out, size());
    detail::check_place("reduce_scatter", "out", "in", p.out, p.in, rank());
  }
  detail::NcclGroup& g = *group_;
  detail::Posted& call = g.open_call(Collective::reduce_scatter, purpose);
  Size bytes = 0;
  for (const ScatterPair& p : pairs) {
    call.pairs.push_back({p.in.data, p.out.data, p.out.count, p.out.type});
    bytes += p.out.bytes() * (size() - 1);
  }
  return g.start(purpose, bytes, [&] {
    detail::NcclResults results;
    for (const ScatterPair& p : pairs) {
      if (g.comm == nullptr) g.copy(p.out.data, p.in.data, p.out.bytes());
      if (g.comm != nullptr && p.out.count > 0)
        results.add(ncclReduceScatter(p.in.data, p.out.data, static_cast<std::size_t>(p.out.count),
                                      detail::nccl_type(p.out.type), ncclSum, g.comm, g.stream()));
    }
    return results.first();
  });
}

DSPP_CUDA_INLINE Pending<> Nccl::start_all_gather(std::span<const GatherPair> pairs, PurposeAt purpose) {
  for (const GatherPair& p : pairs) {
    detail::check_all_gather(p.in, p.out, size());
    detail::check_place("all_gather", "in", "out", p.in, p.out, rank());
  }
  detail::NcclGroup& g = *group_;
  detail::Posted& call = g.open_call(Collective::all_gather, purpose);
  Size bytes = 0;
  for (const GatherPair& p : pairs) {
    call.pairs.push_back({p.in.data, p.out.data, p.in.count, p.in.type});
    bytes += p.in.bytes() * (size() - 1);
  }
  return g.start(purpose, bytes, [&] {
    detail::NcclResults results;
    for (const GatherPair& p : pairs) {
      if (g.comm == nullptr) g.copy(p.out.data, p.in.data, p.in.bytes());
      if (g.comm != nullptr && p.in.count > 0)
        results.add(ncclAllGather(p.in.data, p.out.data, static_cast<std::size_t>(p.in.bytes()), ncclUint8, g.comm,
                                  g.stream()));
    }
    return results.first();
  });
}

DSPP_CUDA_INLINE Pending<> Nccl::start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts,
                                                  PurposeAt purpose) {
  detail::check_all_to_all(in, out, parts, size());
  detail::check_apart("all_to_all", in, out);
  detail::NcclGroup& g = *group_;
  detail::Posted& call = g.open_call(Collective::all_to_all, purpose);
  const Size element = bytes_of(in.type);
  const auto* from = static_cast<const std::byte*>(in.data);
  auto* to = static_cast<std::byte*>(out.data);
  Size bytes = 0;
  for (int r = 0; r < size(); ++r) {
    const Size sent = parts.equal() ? in.count / size() : parts.sent[static_cast<std::size_t>(r)];
    const Size received = parts.equal() ? sent : parts.received[static_cast<std::size_t>(r)];
    call.pairs.push_back({from, to, sent, in.type, received});
    from += sent * element;
    to += received * element;
    if (r != rank()) bytes += received * element;
  }
  return g.start(purpose, bytes, [&] {
    detail::NcclResults results;
    for (int r = 0; r < size(); ++r) {
      const detail::PostedPair& p = call.pairs[static_cast<std::size_t>(r)];
      if (r == rank()) {
        g.copy(p.out, p.in, p.count * element);
        continue;
      }
      if (p.count > 0)
        results.add(ncclSend(p.in, static_cast<std::size_t>(p.count * element), ncclUint8, r, g.comm, g.stream()));
      if (p.received > 0)
        results.add(ncclRecv(p.out, static_cast<std::size_t>(p.received * element), ncclUint8, r, g.comm, g.stream()));
    }
    return results.first();
  });
}

DSPP_CUDA_INLINE Pending<> Nccl::start_broadcast(Buffer x, int root, PurposeAt purpose) {
  detail::check_broadcast(x, root, size());
  detail::check_memory("broadcast", x.data, x.count);
  detail::NcclGroup& g = *group_;
  g.open_call(Collective::broadcast, purpose, root).pairs.push_back({x.data, x.data, x.count, x.type});
  return g.start(purpose, rank() == root ? 0 : x.bytes(), [&] {
    if (g.comm == nullptr || x.count == 0) return ncclSuccess;
    return ncclBroadcast(x.data, x.data, static_cast<std::size_t>(x.bytes()), ncclUint8, root, g.comm, g.stream());
  });
}

DSPP_CUDA_INLINE Pending<> Nccl::start_send(ConstBuffer in, int to, PurposeAt purpose) {
  detail::check_send(in, to, rank(), size());
  detail::check_memory("send", in.data, in.count);
  return group_->start_message(in.data, nullptr, in.count, in.type, to, true, purpose);
}

DSPP_CUDA_INLINE Pending<> Nccl::start_receive(Buffer out, int from, PurposeAt purpose) {
  detail::check_receive(out, from, rank(), size());
  detail::check_memory("receive", out.data, out.count);
  return group_->start_message(nullptr, out.data, out.count, out.type, from, false, purpose);
}

DSPP_CUDA_INLINE void Nccl::barrier(CallSite site) {
  group_->barrier(site);
}

DSPP_CUDA_INLINE NcclWorld::NcclWorld(const RankGroups& host, CudaMemory& memory, NcclOptions options)
    : rank_(std::make_shared<detail::NcclRank>(memory, options, HostGroup(host.world))) {
  using Group = detail::NcclGroup;
  const auto made = [&](const char* name, const AnyCommunicator& of_host) {
    return std::make_shared<Group>(rank_, name, HostGroup(of_host));
  };
  const auto world = made("the world", host.world);
  std::vector<std::shared_ptr<Group>> all{world};
  groups_.node = host.node;
  rank_->guarded([&] {
    if (world->size() > 1) detail::check_nccl_cards(detail::nccl_cards(world->host(), host.node));
    if (options.of_one_rank) detail::nccl_library();
    if (world->size() > 1 || options.of_one_rank) detail::open_nccl_world(*world);
    const auto connected = [&](const char* name, const AnyCommunicator& of_host) {
      all.push_back(made(name, of_host));
      if (of_host.size() > 1) detail::split_nccl_world(*world, *all.back());
      return all.back();
    };
    groups_.world = Nccl(world);
    for (Axis axis : all_axes)
      groups_[axis] = Nccl(connected((std::string("axis ") + name_of(axis)).c_str(), host[axis]));
    const bool is_data = HostGroup(host.replicas).is_same_as(HostGroup(host[Axis::Data])) || host.replicas.size() == 1;
    groups_.replicas = is_data ? groups_[Axis::Data] : AnyCommunicator(Nccl(connected("the replicas", host.replicas)));
    groups_.node_replicas = Nccl(connected("the node's replicas", host.node_replicas));
    groups_.across_nodes = Nccl(connected("the replicas across nodes", host.across_nodes));
  });
  for (const auto& group : all) group->begin_traffic();
}

DSPP_CUDA_INLINE AnyCommunicator NcclWorld::host() {
  if (rank_->world().size() == 1) return rank_->world().communicator();
  return AnyCommunicator(detail::NcclHost(rank_));
}

DSPP_CUDA_INLINE void NcclWorld::end() {
  rank_->end();
}

DSPP_CUDA_INLINE NcclWorld::~NcclWorld() {
  rank_->close();
}

}  // namespace dspp
