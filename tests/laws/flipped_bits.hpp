// SPDX-License-Identifier: Apache-2.0
/// Communicators that flip a bit of a reduction's result, as faulty memory or a faulty network does, and worlds of
/// them.
#pragma once

#include <functional>
#include <utility>

#include <dspp/launch/run.hpp>

namespace dspp::laws {

/// Passes every operation on to C and completes it at once; `damage(purpose, out)` may then change the result of a
/// reduction.
template <Communicator C>
class Damaged {
 public:
  using Damage = std::function<void(Purpose, Buffer)>;
  Damaged(C inner, Damage damage) : inner_(std::move(inner)), damage_(std::move(damage)) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  SumOrder sum_order() const { return inner_.sum_order(); }
  Pending<> start_all_reduce(Buffer x, PurposeAt purpose) {
    inner_.start_all_reduce(x, purpose).wait();
    damage_(purpose, x);
    return {};
  }
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose) {
    inner_.start_reduce_scatter(in, out, purpose).wait();
    damage_(purpose, out);
    return {};
  }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose) {
    inner_.start_reduce_scatter(pairs, purpose).wait();
    for (const ScatterPair& pair : pairs) damage_(purpose, pair.out);
    return {};
  }
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt p) { return inner_.start_all_gather(in, out, p); }
  Pending<> start_all_gather(std::span<const GatherPair> g, PurposeAt p) { return inner_.start_all_gather(g, p); }
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt p) {
    return inner_.start_all_to_all(in, out, parts, p);
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p) { return inner_.start_broadcast(x, root, p); }
  Pending<> start_send(ConstBuffer in, int to, PurposeAt p) { return inner_.start_send(in, to, p); }
  Pending<> start_receive(Buffer out, int from, PurposeAt p) { return inner_.start_receive(out, from, p); }
  void barrier() { inner_.barrier(); }
  const Traffic& traffic() const { return inner_.traffic(); }

 private:
  C inner_;
  Damage damage_;
};

/// Flips bit `bit`, counted from the first and modulo their number, of the elements of `x`.
inline void flip_bit(Buffer x, std::uint64_t bit) {
  const auto at = bit % (8 * static_cast<std::uint64_t>(x.bytes()));
  static_cast<unsigned char*>(x.data)[at / 8] ^= static_cast<unsigned char>(1u << at % 8);
}

/// run_ranks_of on threads, in which `damage(rank, purpose, out)` may change the results of the replicas' reductions,
/// also by node.
template <class P, class Program, class DamageOf>
void run_damaged(int ranks, DamageOf damage, Program program, int ranks_per_node = 0) {
  ThreadWorld threads(mesh_of<P>(ranks), {.timeout_seconds = 60}, ranks_per_node);
  run_ranks(threads.group(), [&](int rank) {
    RankGroups groups = threads.groups(rank);
    for (AnyCommunicator* group : {&groups.replicas, &groups.node_replicas, &groups.across_nodes})
      *group = Damaged<AnyCommunicator>(*group,
                                        [&damage, rank](Purpose purpose, Buffer out) { damage(rank, purpose, out); });
    dspp::detail::run_rank<P>({.seed = 5}, 1, threads.mesh(), rank, groups, [&](World<P>& world) { program(world); });
  });
}

}  // namespace dspp::laws
