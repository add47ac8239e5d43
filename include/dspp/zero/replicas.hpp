// SPDX-License-Identifier: Apache-2.0
/// The replica axes for units: the group, the stage's rule, and at most two bucket operations in flight.
#pragma once

#include <utility>

#include <dspp/autograd/context.hpp>
#include <dspp/base/list.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/zero/bucket.hpp>
#include <dspp/zero/reduction_check.hpp>
#include <dspp/zero/stage.hpp>

namespace dspp {

struct ReplicaConfig {
  StageRule rule{};
  bool wide_gradients = false;    ///< f32 beside bf16 or f16 values
  Size bucket_bytes = 32_MiB;     ///< of values; a larger parameter gets its own bucket
  Tier optimizer = Tier::device;  ///< where the optimizer's state rests
  OffloadConfig offload{};
};

/// Moves buckets over the replica axes. Memory is allocated when an operation starts and freed when it completes, both
/// on the rank's thread, so that a plan on paper has the same blocks in the same order.
template <class T, Device D>
class Replicas {
 public:
  using BucketType = Bucket<T, D>;
  using StorageType = Storage<Memory<D>>;

  constexpr Replicas(Memory<D>& memory, CommunicatorOf<D>& group, const ReplicaConfig& config)
      : memory_(&memory), group_(&group), config_(config) {}
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;
  constexpr ~Replicas() { abandon(); }

  constexpr Memory<D>& memory() const { return *memory_; }
  constexpr CommunicatorOf<D>& group() const { return *group_; }
  constexpr const ReplicaConfig& config() const { return config_; }
  constexpr const StageRule& rule() const { return config_.rule; }

  /// The range that this rank's optimizer updates.
  constexpr Range owned(const BucketType& b) const {
    return rule().optimizer_is_split() ? b.slice(group_->rank(), group_->size()) : Range{0, b.count};
  }
  /// The range whose values are resident on this rank.
  constexpr Range held(const BucketType& b) const { return rule().values_are_split() ? owned(b) : Range{0, b.count}; }
  /// The values of the owned range.
  constexpr Tensor<T, 1, D> owned_values(const BucketType& b) const {
    const Range own = owned(b);
    return Tensor<T, 1, D>::view(b.values.storage(), own.begin - held(b).begin, Shape<1>{{own.count()}});
  }
  constexpr Size gradient_bytes(Size elements) const {
    return elements * static_cast<Size>(config_.wide_gradients ? sizeof(Compute<T>) : sizeof(T));
  }
  constexpr ElementType gradient_type() const {
    return config_.wide_gradients ? element_type<Compute<T>> : element_type<T>;
  }
  /// `storage` as a buffer of gradients: null on paper.
  constexpr Buffer gradient_buffer(const StorageType& storage, Size elements) const {
    return {storage.data(), elements, gradient_type()};
  }

  constexpr int number_of_new_bucket() { return ++buckets_; }
  /// The micro-step in which parameters count their pending gradients.
  constexpr CurrentMicroStep& micro_step() { return current_; }
  /// Numbers the micro-steps: ranks with different numbers do not match, since one threw and began the next.
  constexpr void begin_micro_step() { ++micro_step_; }

  /// False if the transport has its own sum order: every stage then uses reduce-scatter, since an all-reduce of the
  /// same bucket may give other bits.
  constexpr bool sums_in_rank_order() const { return group_->sum_order() >= SumOrder::rank; }

  /// How slices of reduced gradients are checked from now on; whole ones are not. Called when all buckets have numbers.
  ///
  /// Memory   with the first check, that of the ReductionPrints
  [[gnu::noinline]] constexpr void check_reductions(ReductionCheck how) {
    const bool split = rule().optimizer_is_split() && group_->size() > 1;
    check_ = split ? how : ReductionCheck::none;
    if (checks_reductions() && !prints_) prints_.allocate(*memory_, buckets_);
  }
  constexpr bool checks_reductions() const { return check_ != ReductionCheck::none; }
  constexpr ReductionPrints<D>& prints() { return prints_; }

  /// True if another operation may start now.
  constexpr bool has_room() const { return static_cast<int>(in_flight_.size()) < limit; }
  constexpr void make_room() {
    while (!has_room()) complete_oldest();
  }
  [[gnu::noinline]] constexpr void complete_all() {
    while (!in_flight_.empty()) complete_oldest();
  }
  [[gnu::noinline]] constexpr void complete(const BucketType& bucket) {
    while (involves(bucket)) complete_oldest();
  }
  /// Completes operations in flight, the oldest first, and discards their results and errors. Safe during stack
  /// unwinding: every rank issues the same operations. If all ranks threw the same error, training can continue.
  [[gnu::noinline]] constexpr void abandon() {
    while (!in_flight_.empty()) {
      Operation oldest = in_flight_.take_front();
      for (Pending<>* pending : {&oldest.pending, &oldest.gathering}) {
        try {
          pending->wait();
        } catch (...) {  // the communicator keeps the error for its next call
        }
      }
    }
  }
  constexpr bool involves(const BucketType& bucket) const {
    for (const Operation& o : in_flight_)
      if (o.bucket == &bucket) return true;
    return false;
  }

  /// Starts to gather a bucket of split values; the result is valid once complete.
  constexpr StorageType start_gather(BucketType& b);
  /// Starts to gather updated slices into resident values.
  constexpr void start_refresh(BucketType& b);
  /// Starts to reduce the bucket's gradient over the replicas: in place, or to slices, adding to the reduced gradient.
  constexpr void start_reduce(BucketType& b);

 private:
  static constexpr int limit = 2;
  struct Operation {
    BucketType* bucket = nullptr;
    StorageType kept;     ///< kept until the operation completes
    StorageType summand;  ///< added to the bucket's reduced gradient at completion
    Pending<> pending;    ///< declared after the storage: destroyed, and so completed, before it
    bool scatters = false;
    Pending<> gathering{};  ///< the second of an all-reduce in two operations, completed after `pending`
  };
  constexpr Subject subject(const BucketType& b) const { return {b.number, micro_step_}; }
  constexpr void start_all_reduce(BucketType& b);
  constexpr void complete_oldest();
  constexpr void add_summand(const Operation& o);
  constexpr void check_reduction(BucketType& b, const StorageType& whole, const StorageType& sum);

  Memory<D>* memory_;
  CommunicatorOf<D>* group_;
  ReplicaConfig config_;
  List<Operation> in_flight_;
  ReductionCheck check_ = ReductionCheck::none;
  ReductionPrints<D> prints_;
  int buckets_ = 0;
  CurrentMicroStep current_{};
  std::int64_t micro_step_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class T, Device D>
constexpr Storage<Memory<D>> Replicas<T, D>::start_gather(BucketType& b) {
  make_room();
  const Shape<1> whole{{b.count}};
  auto gathered = Tensor<T, 1, D>::uninitialized(whole, *memory_, Category::parameters, "gathered parameters");
  auto pending =
      group_->start_all_gather(buffer(static_cast<const T*>(b.values.data()), b.values.count()),
                               buffer(gathered.data(), b.count), PurposeAt(Purpose::parameter).of(subject(b)));
  in_flight_.push_back(Operation{&b, gathered.storage(), {}, std::move(pending)});
  return gathered.storage();
}

template <class T, Device D>
constexpr void Replicas<T, D>::start_refresh(BucketType& b) {
  make_room();
  const Range own = owned(b);
  const T* slice = b.values.data_from(own.begin);
  auto pending = group_->start_all_gather(buffer(slice, own.count()), buffer(b.values.data(), b.count),
                                          PurposeAt(Purpose::parameter).of(subject(b)));
  in_flight_.push_back(Operation{&b, b.values.storage(), {}, std::move(pending)});
}

/// In place. In two operations, this rank first reduces its slice of the bucket, as under stages 1 to 3.
template <class T, Device D>
constexpr void Replicas<T, D>::start_all_reduce(BucketType& b) {
  const Buffer whole = gradient_buffer(b.gradient, b.count);
  const auto purpose = PurposeAt(Purpose::gradient).of(subject(b));
  b.reduced = std::exchange(b.gradient, {});
  if (sums_in_rank_order()) {
    in_flight_.push_back(Operation{&b, b.reduced, {}, group_->start_all_reduce(whole, purpose)});
    return;
  }
  const Size elements = b.count / group_->size();
  const Buffer own{detail::byte_of<D>(b.reduced, gradient_bytes(elements) * group_->rank()), elements, gradient_type()};
  auto pending = group_->start_reduce_scatter(whole, own, purpose);
  in_flight_.push_back(Operation{&b, b.reduced, {}, std::move(pending)});
  in_flight_.back().gathering = group_->start_all_gather(own, whole, purpose);
}

template <class T, Device D>
constexpr void Replicas<T, D>::start_reduce(BucketType& b) {
  make_room();
  if (rule().reduce == Move::all_reduce) return start_all_reduce(b);
  const Buffer whole = gradient_buffer(b.gradient, b.count);
  if (checks_reductions()) complete(b);  // a bucket has one digest of a sum
  const auto purpose = PurposeAt(Purpose::gradient).of(subject(b)).with_digest(checks_reductions() ? &b.sum : nullptr);
  b.sum = {};
  const Size elements = b.count / group_->size();
  const bool first = !b.reduced;
  StorageType sum(*memory_, gradient_bytes(elements), first ? Category::gradients : Category::communication,
                  "reduced gradients");
  auto pending = group_->start_reduce_scatter(whole, gradient_buffer(sum, elements), purpose);
  StorageType summand;  // no conditional expression: g++ 12 frees its temporary twice in constant expressions
  (first ? b.reduced : summand) = std::move(sum);
  in_flight_.push_back(Operation{&b, std::exchange(b.gradient, {}), std::move(summand), std::move(pending), true});
}

template <class T, Device D>
constexpr void Replicas<T, D>::complete_oldest() {
  Operation o = in_flight_.take_front();
  o.pending.wait();
  o.gathering.wait();
  BucketType& b = *o.bucket;
  const Size bytes = gradient_bytes(b.count / group_->size());
  const bool checks = o.scatters && checks_reductions();
  if (checks && !o.summand) prints_.begin(b.number);
  if (checks && o.summand) prints_.check_resting(b.number, b.reduced, bytes);
  if (checks && check_ == ReductionCheck::repeat && sums_in_rank_order())
    check_reduction(b, o.kept, o.summand ? o.summand : b.reduced);
  if (checks && o.summand) prints_.check_summand(b.number, b.sum, o.summand, bytes);
  if (o.summand) add_summand(o);
  if (!checks) return;
  if (o.summand) b.sum = {};  // the communicator's is of the summand
  prints_.note_sum(b.number, b.sum, b.reduced, bytes);
}

template <class T, Device D>
constexpr void Replicas<T, D>::add_summand(const Operation& o) {
  const Shape<1> slice{{o.bucket->count / group_->size()}};
  if (config_.wide_gradients)
    ops::add_into(Tensor<Compute<T>, 1, D>::view(o.bucket->reduced, 0, slice),
                  Tensor<Compute<T>, 1, D>::view(o.summand, 0, slice));
  else
    ops::add_into(Tensor<T, 1, D>::view(o.bucket->reduced, 0, slice), Tensor<T, 1, D>::view(o.summand, 0, slice));
}

/// Reduces the bucket, of which `sum` is this rank's slice, twice more: each rank sums the previous rank's slice, then
/// its own again, which restores `sum`. In rank order the bits do not depend on the rank that sums, so all three
/// digests of a slice are equal. Allocates nothing.
template <class T, Device D>
constexpr void Replicas<T, D>::check_reduction(BucketType& b, const StorageType& whole, const StorageType& sum) {
  const Size slice = b.count / group_->size(), bytes = gradient_bytes(slice);
  const auto note = [&](Size which) { prints_.add(b.number, which, sum, bytes); };
  const auto reduce_rotated = [&](Size by) {
    ops::rotate<D>(*memory_, whole.data(), gradient_bytes(b.count), by);
    reduce_scatter(*group_, gradient_buffer(whole, b.count), gradient_buffer(sum, slice),
                   PurposeAt(Purpose::check).of(subject(b)));
  };
  note(ReductionPrint::first);
  reduce_rotated(bytes);
  note(ReductionPrint::neighbour);
  reduce_rotated(gradient_bytes(b.count) - bytes);
  note(ReductionPrint::again);
}

}  // namespace dspp
