// SPDX-License-Identifier: Apache-2.0
/// What is done where an operation of the replicas completes, or is given up: sums over micro-steps, and checks of
/// reductions.
#pragma once

#include <dspp/ops/arithmetic.hpp>
#include <dspp/zero/replicas.hpp>

namespace dspp {

template <class T, Device D>
constexpr void Replicas<T, D>::complete_oldest() {
  Operation o = in_flight_.take_front();
  gathers_ahead_ -= o.is_ahead, second_hops_ -= o.is_second;
  o.pending.wait();
  o.gathering.wait();
  if (is_timed_) clock_.wait(flops_done(), o.arrives);
  BucketType& b = *o.bucket;
  if (o.has_hop) {
    if (o.scatters && reduces_twice() && !o.is_second) return start_second_hop(o, hops_.take_front());
    const bool done = complete_hop(o, hops_.take_front());
    if (is_timed_ && counted_ < bytes_moved()) clock_.wait(flops_done(), time_of_new_bytes());
    if (done) return;
  }
  if (on_reduced_ && o.summand) on_reduced_->changes(b);
  if (o.scatters)
    checks_reductions() ? check_scatter(o) : o.summand ? add_summand(o) : void();
  else if (reduces_late_ && o.summand)
    add_summand(o);
  if (on_reduced_) tell_of(o);
}

template <class T, Device D>
constexpr void Replicas<T, D>::complete_refreshes_until(const BucketType& b) {
  const std::size_t begin = refreshes_.size() - refreshing_;
  std::size_t last = begin;
  while (last < refreshes_.size() && refreshes_[last].bucket != &b) ++last;
  if (last == refreshes_.size()) return;
  for (std::size_t i = begin; i <= last; ++i) complete_oldest_refresh();
}

template <class T, Device D>
constexpr void Replicas<T, D>::complete_oldest_refresh() {
  Refresh& oldest = refreshes_[refreshes_.size() - refreshing_--];
  oldest.pending.wait();
  if (is_timed_) clock_.wait(flops_done(), oldest.arrives);
}

template <class T, Device D>
constexpr void Replicas<T, D>::abandon() {
  const auto give_up = [](Pending<>& pending) {
    try {
      pending.wait();
    } catch (...) {  // the communicator keeps the error for its next call
    }
  };
  for (; refreshing_ > 0; --refreshing_) give_up(refreshes_[refreshes_.size() - refreshing_].pending);
  while (!in_flight_.empty()) {
    Operation oldest = in_flight_.take_front();
    give_up(oldest.pending), give_up(oldest.gathering);
  }
  hops_.free();
  gathers_ahead_ = second_hops_ = 0;
}

template <class T, Device D>
constexpr void Replicas<T, D>::tell_of(const Operation& o) {
  BucketType& b = *o.bucket;
  const bool is_complete = o.scatters ? copies() == 1 : b.reduced && o.kept.data() == b.reduced.data();
  if (is_complete) on_reduced_->reduced(b);
}

template <class T, Device D>
constexpr void Replicas<T, D>::check_scatter(const Operation& o) {
  BucketType& b = *o.bucket;
  const Size bytes = slice_bytes(b);
  if (!o.summand) prints_.begin(b.number);
  if (o.summand) prints_.check_resting(b.number, b.reduced, bytes);
  if (check_ == ReductionCheck::repeat && sums_in_rank_order() && !quantizes_gradients())
    check_reduction(b, o.kept, o.summand ? o.summand : b.reduced);
  if (o.summand) prints_.check_summand(b.number, b.sum, o.summand, bytes);
  if (o.summand) add_summand(o);
  if (o.summand) b.sum = {};  // the communicator's is of the summand
  prints_.note_sum(b.number, b.sum, b.reduced, bytes);
}

template <class T, Device D>
constexpr void Replicas<T, D>::add_summand(const Operation& o) {
  const Shape<1> extents{{o.scatters ? slice_of(*o.bucket) : o.bucket->count}};
  with_gradient_type([&]<class G>(G) {
    ops::add_into(Tensor<G, 1, D>::view(o.bucket->reduced, 0, extents), Tensor<G, 1, D>::view(o.summand, 0, extents));
  });
}

/// Reduces the bucket, of which `sum` is this rank's slice, twice more: each rank sums the previous rank's slice, then
/// its own again, which restores `sum`. In rank order the bits do not depend on the rank that sums, so all three
/// digests of a slice are equal. Allocates nothing.
template <class T, Device D>
constexpr void Replicas<T, D>::check_reduction(BucketType& b, const StorageType& whole, const StorageType& sum) {
  const Size slice = slice_of(b), bytes = slice_bytes(b);
  const auto note = [&](Size which) { prints_.add(b.number, which, sum, bytes); };
  const auto reduce_rotated = [&](Size by) {
    ops::rotate<D>(*memory_, whole.data(), gradient_bytes(b.count), by);
    reduce_scatter(shards(), gradient_buffer(whole, b.count), gradient_buffer(sum, slice),
                   PurposeAt(Purpose::check).of(subject(b)));
  };
  note(ReductionPrint::first);
  reduce_rotated(bytes);
  note(ReductionPrint::neighbour);
  reduce_rotated(gradient_bytes(b.count) - bytes);
  note(ReductionPrint::again);
}

}  // namespace dspp
