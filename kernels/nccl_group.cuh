// SPDX-License-Identifier: Apache-2.0
/// One rank's end of a group of GPUs: its operations as NCCL's.
#pragma once

#include <cstring>
#include <deque>
#include <memory>

#include <dspp/comm/check.hpp>
#include <kernels/copy.cuh>
#include <kernels/nccl_line.cuh>

namespace dspp::detail {

constexpr ncclDataType_t nccl_type(ElementType type) {
  switch (type) {
    case ElementType::f64: return ncclFloat64;
    case ElementType::f32: return ncclFloat32;
    case ElementType::bf16: return ncclBfloat16;
    case ElementType::f16: return ncclFloat16;
    case ElementType::i32: return ncclInt32;
    case ElementType::i64: return ncclInt64;
    case ElementType::u8: return ncclUint8;
  }
  return ncclUint8;
}

/// The first result that is an error, of the calls of one group of NCCL's.
class NcclResults {
 public:
  void add(ncclResult_t result) {
    if (first_ == ncclSuccess || first_ == ncclInProgress) first_ = result;
  }
  ncclResult_t first() const { return first_; }

 private:
  ncclResult_t first_ = ncclSuccess;
};

/// Messages from one rank to another, on a communicator of the two and a stream of their own: whatever else the ranks
/// call, and in either order of waits, they are received in the order in which they are sent.
///
/// The sender makes NCCL's id and sends it through the host; then both join. Nothing of it waits: advance() goes on.
class NcclChannel final : public NcclLine, public std::enable_shared_from_this<NcclChannel> {
 public:
  NcclChannel(NcclRank& rank, const HostGroup& group, int peer, bool sends)
      : NcclLine(rank.shared_from_this(), channel_name(sends ? group.rank() : peer, sends ? peer : group.rank()),
                 group),
        peer_(peer),
        sends_(sends) {
    if (sends_) {
      ncclUniqueId id{};
      check(ncclGetUniqueId(&id));
      std::memcpy(id_.data(), &id, sizeof id);
      moves_ =
          host().communicator().start_send(ConstBuffer(id_.data(), id_size, ElementType::u8), peer_, Purpose::check);
    } else {
      moves_ = host().communicator().start_receive(buffer(id_.data(), id_size), peer_, Purpose::check);
    }
  }
  ~NcclChannel() override { drop_calls(); }

  Pending<> start(const void* in, void* out, Size count, ElementType type, PurposeAt purpose) {
    while (opened() - launched() >= remembered) await(launched());
    Posted& call = open(Collective::send, purpose, sends_ ? sender : receiver);
    call.pairs.push_back({in, out, count, type});
    calls_.push_back(host().announce(Collective::send, purpose, call.root, call.pairs, peer_));
    if (calls_.size() >= operations_in_flight) {
      Pending<> oldest = std::move(calls_.front());
      calls_.pop_front();
      oldest.wait();
    }
    owner().progress();
    exceptions_ = std::uncaught_exceptions();
    if (pendings_++ == 0) keep_alive_ = shared_from_this();
    static constexpr Completion completion = {
        [](void* who, std::uint64_t ticket) { static_cast<NcclChannel*>(who)->wait(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<NcclChannel*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, opened() - 1);
  }
  /// What the host moved for this channel itself.
  const Traffic& hidden() const { return hidden_; }

  void advance() override {
    if (!is_open_ && !join_peer()) return;
    while (launched() < opened()) {
      if (!under_way_) {
        begin();
        const PostedPair& pair = call(launched()).pairs.front();
        const auto bytes = static_cast<std::size_t>(pair.count * bytes_of(pair.type));
        const int to = sends_ ? 1 : 0;
        if (bytes > 0)
          check(sends_ ? ncclSend(pair.in, bytes, ncclUint8, to, comm, stream())
                       : ncclRecv(pair.out, bytes, ncclUint8, to, comm, stream()));
        under_way_ = true;
      }
      if (!is_settled()) return;
      under_way_ = false;
      launch();
    }
  }
  void drop_calls() noexcept override {
    calls_.clear();
    moves_ = Pending<>();
  }

 private:
  static constexpr Size id_size = NCCL_UNIQUE_ID_BYTES;

  /// True once the communicator is open.
  bool join_peer() {
    if (comm == nullptr) {
      if (!sends_ && !moves_.is_complete()) return false;
      ncclUniqueId id{};
      std::memcpy(&id, id_.data(), sizeof id);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      check(ncclCommInitRankConfig(&comm, 2, id, sends_ ? 0 : 1, &config));
    }
    if (!is_settled() || !moves_.is_complete()) return false;
    moves_.wait();  // at once
    hidden_.count(Collective::send, Purpose::check, sends_ ? 0 : id_size);
    is_open_ = true;
    owner().register_with(*this);
    return true;
  }

  /// Returns when NCCL has the operation.
  void await(std::uint64_t operation) {
    for (NcclPatience patience; launched() <= operation; patience.pause()) {
      owner().progress();
      if (launched() <= operation && patience.is_over(owner().world().timeout_seconds())) fail_timeout();
    }
  }
  void wait(std::uint64_t ticket) {
    struct Release {
      NcclChannel& channel;
      ~Release() { channel.release(); }
    } on_exit{*this};
    owner().guarded([&] {
      await(ticket);
      join(ticket);
    });
  }
  void drop(std::uint64_t ticket) noexcept {
    try {
      if (launched() <= ticket && std::uncaught_exceptions() > exceptions_)
        owner().stop(Error(ErrorCode::aborted, "dspp: " + owner().name() + " stopped by an exception."));
      owner().guarded([&] {
        await(ticket);
        join(ticket);
      });
    } catch (...) {  // kept for the next call
    }
    release();
  }
  void release() {
    if (--pendings_ > 0) return;
    const auto last = std::move(keep_alive_);
  }

  int peer_;
  bool sends_, is_open_ = false, under_way_ = false;
  std::array<std::uint8_t, static_cast<std::size_t>(id_size)> id_{};
  Pending<> moves_;
  std::deque<Pending<>> calls_;  // announced
  Traffic hidden_;
  int exceptions_ = 0, pendings_ = 0;
  std::shared_ptr<NcclChannel> keep_alive_;
};

class NcclGroup final : public NcclLine, public std::enable_shared_from_this<NcclGroup> {
 public:
  NcclGroup(std::shared_ptr<NcclRank> rank, std::string name, HostGroup host)
      : NcclLine(std::move(rank), std::move(name), std::move(host)) {}
  ~NcclGroup() override { drop_calls(); }

  /// Once connected: what the host has moved until now is not this group's.
  void begin_traffic() { before_ = host().communicator().traffic(); }
  const Traffic& traffic() const {
    total_ = own_ + host().communicator().traffic() - before_;
    for (const auto& [way, channel] : channels_) total_ -= channel->hidden();
    return total_;
  }

  /// The description of the next operation, to which pairs are added.
  Posted& open_call(Collective collective, PurposeAt purpose, int root = 0) {
    owner().require_alive();
    return open(collective, purpose, root);
  }
  /// Announces it, and issues what calls() calls of NCCL or CUDA on stream(), of which it returns the first error; each
  /// call reads `bytes` from the other ranks.
  template <class Calls>
  Pending<> start(PurposeAt purpose, Size bytes, Calls calls) {
    const Posted& mine = call(launched());
    owner().guarded([&] {
      if (calls_.size() + 1 >= operations_in_flight) {
        Pending<> oldest = std::move(calls_.front());
        calls_.pop_front();
        oldest.wait();
      }
      calls_.push_back(host().announce(mine.collective, purpose, mine.root, mine.pairs));
      begin();
      if (comm != nullptr) {
        check(ncclGroupStart());
        struct Group {  // an open one would keep every later call, abort's, too, from NCCL
          bool open = true;
          ~Group() {
            if (open) ncclGroupEnd();
          }
        } group;
        const ncclResult_t called = calls();
        group.open = false;
        const ncclResult_t ended = ncclGroupEnd();
        check(called);
        settle(ended);
      } else {
        check(calls());
      }
      launch();
    });
    own_.count(mine.collective, mine.purpose, bytes);
    if (pendings_++ == 0) keep_alive_ = shared_from_this();
    static constexpr Completion completion = {
        [](void* who, std::uint64_t ticket) { static_cast<NcclGroup*>(who)->wait(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<NcclGroup*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, launched() - 1);
  }

  Pending<> start_message(const void* in, void* out, Size count, ElementType type, int peer, bool sends,
                          PurposeAt purpose) {
    Pending<> pending = owner().guarded([&] {
      std::shared_ptr<NcclChannel>& channel = channels_[{peer, sends}];
      if (!channel) channel = std::make_shared<NcclChannel>(owner(), host(), peer, sends);
      return channel->start(in, out, count, type, purpose);
    });
    own_.count(Collective::send, purpose, sends ? 0 : count * bytes_of(type));
    return pending;
  }

  void barrier(CallSite site) {
    owner().barrier(host(), site);
    own_.count(Collective::barrier, Purpose::scalar, 0);
  }

  /// On stream(), unless they are one.
  void copy(void* to, const void* from, Size bytes) {
    if (to == from || bytes == 0) return;
    // Not waited for: it may be inside of a group of calls.
    if (owner().memory().is_mapped(static_cast<const std::byte*>(to)))
      gpu::copy_mapped(stream(), to, from, bytes);
    else
      gpu::check({"copy", 1, bytes},
                 cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream()));
  }

  void drop_calls() noexcept override { calls_.clear(); }

 private:
  void wait(std::uint64_t ticket) {
    struct Release {
      NcclGroup& group;
      ~Release() { group.release(); }
    } on_exit{*this};
    owner().guarded([&] {
      owner().progress();
      join(ticket);
    });
  }
  void drop(std::uint64_t ticket) noexcept {
    try {
      join(ticket);
    } catch (...) {
      owner().stop(Error(ErrorCode::state, "dspp: CUDA failed to order a collective's end. See the first error."));
    }
    release();
  }
  void release() {
    if (--pendings_ > 0) return;
    const auto last = std::move(keep_alive_);
  }

  std::deque<Pending<>> calls_;                                            // announced
  std::map<std::pair<int, bool>, std::shared_ptr<NcclChannel>> channels_;  // by peer, and whether this rank sends
  Traffic own_, before_;
  mutable Traffic total_;
  int pendings_ = 0;
  std::shared_ptr<NcclGroup> keep_alive_;
};

}  // namespace dspp::detail
