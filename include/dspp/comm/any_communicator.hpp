// SPDX-License-Identifier: Apache-2.0
/// A type-erased communicator, so that model code is compiled once for all worlds.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <dspp/comm/communicator.hpp>
#include <dspp/comm/host_calls.hpp>
#include <dspp/comm/self.hpp>

namespace dspp {

/// A handle on a communicator of any type; copies share it and its traffic. A default one is a Self.
/// Cost: one indirect call per collective.
class AnyCommunicator {
 public:
  AnyCommunicator() : AnyCommunicator(Self{}) {}

  template <class C>
  requires(Communicator<C> && !std::same_as<std::remove_cvref_t<C>, AnyCommunicator>) AnyCommunicator(C&& communicator)
      : model_(std::make_shared<std::remove_cvref_t<C>>(std::forward<C>(communicator))),
        table_(&table_of<std::remove_cvref_t<C>>),
        rank_(static_cast<std::remove_cvref_t<C>*>(model_.get())->rank()),
        size_(static_cast<std::remove_cvref_t<C>*>(model_.get())->size()),
        sum_order_(static_cast<std::remove_cvref_t<C>*>(model_.get())->sum_order()) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  SumOrder sum_order() const { return sum_order_; }

  Pending<> start_all_reduce(Buffer x, PurposeAt purpose) { return table_->all_reduce(model_.get(), x, purpose); }
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt purpose) {
    return table_->reduce_scatter(model_.get(), in, out, purpose);
  }
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt purpose) {
    return table_->all_gather(model_.get(), in, out, purpose);
  }
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt purpose) {
    return table_->all_to_all(model_.get(), in, out, parts, purpose);
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt purpose) {
    return table_->broadcast(model_.get(), x, root, purpose);
  }
  Pending<> start_send(ConstBuffer in, int to, PurposeAt purpose) {
    return table_->send(model_.get(), in, to, purpose);
  }
  Pending<> start_receive(Buffer out, int from, PurposeAt purpose) {
    return table_->receive(model_.get(), out, from, purpose);
  }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt purpose) {
    return table_->reduce_scatter_pairs(model_.get(), pairs, purpose);
  }
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt purpose) {
    return table_->all_gather_pairs(model_.get(), pairs, purpose);
  }
  void barrier(CallSite site = CallSite::here()) { table_->barrier(model_.get(), site); }
  const Traffic& traffic() const { return table_->traffic(model_.get()); }
  bool async_progress(Size bytes) const { return table_->async_progress(model_.get(), bytes); }

  /// The wrapped communicator if it is a C; else null.
  template <class C>
  C* get_if() const {
    return table_ == &table_of<C> ? static_cast<C*>(model_.get()) : nullptr;
  }

 private:
  friend class HostGroup;

  struct Table {
    Pending<> (*all_reduce)(void*, Buffer, PurposeAt);
    Pending<> (*reduce_scatter)(void*, ConstBuffer, Buffer, PurposeAt);
    Pending<> (*all_gather)(void*, ConstBuffer, Buffer, PurposeAt);
    Pending<> (*all_to_all)(void*, ConstBuffer, Buffer, const PartCounts&, PurposeAt);
    Pending<> (*broadcast)(void*, Buffer, int, PurposeAt);
    Pending<> (*send)(void*, ConstBuffer, int, PurposeAt);
    Pending<> (*receive)(void*, Buffer, int, PurposeAt);
    Pending<> (*reduce_scatter_pairs)(void*, std::span<const ScatterPair>, PurposeAt);
    Pending<> (*all_gather_pairs)(void*, std::span<const GatherPair>, PurposeAt);
    void (*barrier)(void*, CallSite);
    const Traffic& (*traffic)(const void*);
    bool (*async_progress)(const void*, Size);
    const detail::HostCalls* host;
  };

  template <class C>
  static constexpr Table table_of = {
      [](void* c, Buffer x, PurposeAt p) { return static_cast<C*>(c)->start_all_reduce(x, p); },
      [](void* c, ConstBuffer a, Buffer y, PurposeAt p) { return static_cast<C*>(c)->start_reduce_scatter(a, y, p); },
      [](void* c, ConstBuffer a, Buffer y, PurposeAt p) { return static_cast<C*>(c)->start_all_gather(a, y, p); },
      [](void* c, ConstBuffer a, Buffer y, const PartCounts& parts, PurposeAt p) {
        return static_cast<C*>(c)->start_all_to_all(a, y, parts, p);
      },
      [](void* c, Buffer x, int root, PurposeAt p) { return static_cast<C*>(c)->start_broadcast(x, root, p); },
      [](void* c, ConstBuffer a, int to, PurposeAt p) { return static_cast<C*>(c)->start_send(a, to, p); },
      [](void* c, Buffer y, int from, PurposeAt p) { return static_cast<C*>(c)->start_receive(y, from, p); },
      [](void* c, std::span<const ScatterPair> s, PurposeAt p) {
        return static_cast<C*>(c)->start_reduce_scatter(s, p);
      },
      [](void* c, std::span<const GatherPair> g, PurposeAt p) { return static_cast<C*>(c)->start_all_gather(g, p); },
      [](void* c, CallSite site) { detail::barrier_at(*static_cast<C*>(c), site); },
      [](const void* c) -> const Traffic& { return static_cast<const C*>(c)->traffic(); },
      [](const void* c, Size bytes) { return detail::has_async_progress(*static_cast<const C*>(c), bytes); },
      detail::host_calls<C>(),
  };

  std::shared_ptr<void> model_;
  const Table* table_;
  int rank_;
  int size_;
  SumOrder sum_order_;
};

static_assert(Communicator<AnyCommunicator>);

}  // namespace dspp
