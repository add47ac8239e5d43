// SPDX-License-Identifier: Apache-2.0
/// The replica axes for units: the groups, the stage's rule, and the bucket operations in flight.
#pragma once

#include <limits>
#include <utility>

#include <dspp/autograd/context.hpp>
#include <dspp/base/list.hpp>
#include <dspp/comm/async_progress.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/quantized_parts.hpp>
#include <dspp/zero/bucket.hpp>
#include <dspp/zero/input_file.hpp>
#include <dspp/zero/offload_file.hpp>
#include <dspp/zero/overlap_clock.hpp>
#include <dspp/zero/reduction_check.hpp>
#include <dspp/zero/replica_config.hpp>
#include <dspp/zero/stage.hpp>

namespace dspp {

/// Moves buckets over the replica axes. Memory is allocated and freed when an operation starts and when it completes,
/// both on the rank's thread, so that a plan on paper has the same blocks in the same order.
template <class T, Device D>
class Replicas {
 public:
  using BucketType = Bucket<T, D>;
  using StorageType = Storage<Memory<D>>;

  constexpr Replicas(Memory<D>& memory, CommunicatorOf<D>& group, const ReplicaConfig& config)
      : memory_(&memory), groups_{&group}, shards_(&group), config_(config) {
    open_files();
  }
  /// `host`: if the configuration uses it; it must outlive the buckets.
  ///
  /// Throws   Error(placement) if the configuration needs nodes, and they do not divide the replicas
  constexpr Replicas(Memory<D>& memory, Memory<D>* host, const ReplicaGroups<D>& groups, const ReplicaConfig& config);
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;
  constexpr ~Replicas() { give_up_step(); }

  constexpr Memory<D>& memory() const { return *memory_; }
  /// For what rests in the host's memory; null if nothing does. The most bytes that were there.
  constexpr Memory<D>* host_memory() const { return host_; }
  /// From now on; it must outlive the buckets.
  constexpr void set_host_memory(Memory<D>* host) { host_ = host; }
  constexpr Size host_bytes() const { return host_ ? host_->peak() : 0; }
  /// All replicas, and those over which what the stage shards is cut.
  constexpr CommunicatorOf<D>& group() const { return *groups_.all; }
  constexpr CommunicatorOf<D>& shards() const { return *shards_; }
  /// The nodes of the replicas; 1 if the configuration needs none.
  constexpr int nodes() const { return config_.traffic.needs_nodes() ? groups_.across_nodes->size() : 1; }
  /// Those that have the same shards, or secondary ones.
  constexpr int nodes_with_the_same_state() const {
    return shards_within_node() || config_.traffic.secondary_shards ? nodes() : 1;
  }
  /// How many ranks have this rank's shard, of which this is number copy().
  constexpr int copies() const { return shards_within_node() ? groups_.across_nodes->size() : 1; }
  constexpr int copy() const { return shards_within_node() ? groups_.across_nodes->rank() : 0; }
  constexpr const ReplicaConfig& config() const { return config_; }
  constexpr const StageRule& rule() const { return config_.rule; }

  /// The range that this rank's optimizer updates.
  constexpr Range owned(const BucketType& b) const {
    return rule().optimizer_is_split() ? b.slice(shards().rank(), shards().size()) : Range{0, b.count};
  }
  /// The range whose values are resident on this rank.
  constexpr Range held(const BucketType& b) const { return rule().values_are_split() ? owned(b) : Range{0, b.count}; }
  constexpr bool values_are_on_disk() const { return config_.parameters == Tier::disk; }
  /// The file of the values, if they are on a disk; that of what recomputations keep, null if they keep it in memory.
  constexpr OffloadFile<D>& value_file() { return values_; }
  constexpr KeptInputFile<D>* input_file() { return inputs_.is_open() ? &inputs_ : nullptr; }
  constexpr Size disk_bytes() const { return values_.bytes() + inputs_.bytes(); }
  /// Allocates the values of a bucket, zeroed. In order of the buckets' numbers.
  constexpr void add_values(BucketType& b) {
    const Size count = held(b).count(), bytes = count * static_cast<Size>(sizeof(T));
    const bool is_moved =
        config_.parameters == Tier::disk || (config_.parameters == Tier::host && divided_.moves(bytes));
    b.resting = is_moved ? host_ : memory_;
    if (values_are_on_disk()) return values_.add(bytes, !b.frozen);
    b.values = Tensor<T, 1, D>::zeros(Shape<1>{{count}}, *b.resting, Category::parameters, "parameters");
  }
  /// The values that this rank holds of a bucket, to read. On a disk they are in memory while the tensor lives, and may
  /// be changed after change_values(b), until those of another bucket are asked for.
  constexpr Tensor<T, 1, D> held_values(const BucketType& b) {
    if (refreshing_ > 0) complete_refreshes_until(b);
    if (!values_are_on_disk()) return b.values;  // g++ 12 miscounts the handles of a conditional expression
    return values_.template fetch<T>(block_of(b), 0, held(b).count());
  }
  constexpr void change_values(const BucketType& b) {
    if (values_are_on_disk()) values_.change(block_of(b));
  }
  constexpr void read_values_ahead(const BucketType& b) {
    if (values_are_on_disk()) values_.read_ahead(block_of(b));
  }
  /// Of them, those of the owned range.
  constexpr Tensor<T, 1, D> owned_values(const BucketType& b) {
    if (values_are_on_disk()) return held_values(b);  // split, as all of a rank's are
    if (refreshing_ > 0) complete_refreshes_until(b);
    const Range own = owned(b);
    return Tensor<T, 1, D>::view(b.values.storage(), own.begin - held(b).begin, Shape<1>{{own.count()}});
  }
  constexpr Size gradient_bytes(Size elements) const {
    return elements * static_cast<Size>(config_.wide_gradients ? sizeof(Compute<T>) : sizeof(T));
  }
  constexpr ElementType gradient_type() const {
    return config_.wide_gradients ? element_type<Compute<T>> : element_type<T>;
  }
  /// Elements of a slice of a bucket, and the bytes of its gradient.
  constexpr Size slice_of(const BucketType& b) const { return b.count / shards_->size(); }
  constexpr Size slice_bytes(const BucketType& b) const { return gradient_bytes(slice_of(b)); }
  /// `storage` as a buffer of gradients: null on paper.
  constexpr Buffer gradient_buffer(const StorageType& storage, Size elements) const {
    return {storage.data(), elements, gradient_type()};
  }

  constexpr int number_of_new_bucket() { return ++buckets_; }
  /// The micro-step in which parameters count their pending gradients.
  constexpr CurrentMicroStep& micro_step() { return current_; }
  /// A backward begins, the last of a step or not, which it returns.
  constexpr bool begin_backward(bool is_last) {
    reduces_units_ = is_last && reduces_late_ && group().size() > 1;
    return is_last;
  }
  /// Whether gradients that stay until the step are reduced with the last use of their unit in the running backward, in
  /// the order of start_reductions() of all units.
  constexpr bool reduces_units() const { return reduces_units_; }
  /// Who hears of reductions from now on; null: nobody.
  constexpr void set_on_reduced(OnReduced<T, D>* who) { on_reduced_ = who; }
  /// Numbers the micro-steps: ranks with different numbers do not match, since one threw and began the next.
  constexpr void begin_micro_step() {
    ++micro_step_;
    memory_->begin_step();
    if (errors_are_old_) zero_errors();
    reduces_units_ = false;
  }

  /// False if the transport has its own sum order: every stage then uses reduce-scatter, since an all-reduce of the
  /// same bucket may give other bits.
  constexpr bool sums_in_rank_order() const { return group().sum_order() >= SumOrder::rank; }

  /// How slices of reduced gradients are checked from now on; whole ones are not. Called when all buckets have numbers.
  ///
  /// Memory   with the first check, that of the ReductionPrints
  [[gnu::noinline]] constexpr void check_reductions(ReductionCheck how) {
    const bool split = rule().optimizer_is_split() && shards().size() > 1;
    check_ = split ? how : ReductionCheck::none;
    if (checks_reductions() && !prints_) prints_.allocate(*memory_, buckets_);
  }
  constexpr bool checks_reductions() const { return check_ != ReductionCheck::none; }
  constexpr ReductionPrints<D>& prints() { return prints_; }

  /// True if another operation may start now, besides gathers ahead within prefetch_bytes and second hops.
  constexpr bool has_room() const {
    return static_cast<int>(in_flight_.size()) - gathers_ahead_ - second_hops_ < limit;
  }
  constexpr void make_room() {
    while (!has_room()) complete_oldest();
  }
  /// From now on, on paper: how long operations take beside computation.
  constexpr void set_rates(const Rates& rates) {
    clock_ = OverlapClock(rates), counted_ = bytes_moved();
    is_timed_ = true;
  }
  constexpr StepSeconds seconds() const { return clock_.seconds(flops_done()); }

  /// True if a bucket of the next unit may be gathered now.
  constexpr bool may_gather_next_unit() const {
    return static_cast<int>(in_flight_.size()) - second_hops_ < most_of_next_unit_;
  }
  /// True if so many bytes may be gathered now, whatever unit they are of.
  constexpr bool may_gather_ahead(Size bytes) const {
    return config_.traffic.overlaps && ahead_bytes_ + bytes <= config_.prefetch_bytes &&
           gathers_ahead_ < most_gathers_ahead;
  }
  /// What was gathered ahead is used now, or given up. Sets `bytes` to 0.
  constexpr void use_ahead(Size& bytes) { ahead_bytes_ -= std::exchange(bytes, 0); }
  [[gnu::noinline]] constexpr void complete_all() {
    while (refreshing_ > 0) complete_oldest_refresh();
    while (!in_flight_.empty()) complete_oldest();
  }
  /// `second_hops`: also those of its reductions, which no gather of its values needs.
  [[gnu::noinline]] constexpr void complete(const BucketType& bucket, bool second_hops = true) {
    while (involves(bucket, second_hops)) complete_oldest();
  }
  /// Completes operations in flight, the oldest first, and discards their results and errors. Safe during stack
  /// unwinding: every rank issues the same operations. If all ranks threw the same error, training can continue.
  constexpr void abandon();
  /// After a step, whose gradients are gone; `how`: as in check_reductions; `forgets_errors`: of quantization.
  constexpr void end_step(ReductionCheck how, bool forgets_errors) {
    memory_->end_step();
    if (forgets_errors || ++steps_with_errors_ >= config_.error_feedback.reset_steps) forget_errors();
    check_reductions(how);
  }
  /// A step is given up.
  constexpr void drop_step() { give_up_step(), forget_errors(); }
  /// Under LoCo, of a bucket that is trained: what quantization will lose of its gradient.
  constexpr void add_errors(const BucketType& b) {
    if (group().size() == 1) return;
    errors_.resize(static_cast<std::size_t>(buckets_));
    Errors& errors = errors_[block_of(b)];
    const auto take = [&](Size bytes) {
      return StorageType(*memory_, bytes, Category::communication, "quantization errors");
    };
    errors.own = take(gradient_bytes(b.count));
    if (reduces_twice()) errors.of_node = take(slice_of(b) * nodes() * Size{sizeof(Compute<T>)});
  }
  /// They are 0 again, from the next micro-step on.
  constexpr void forget_errors() { errors_are_old_ = true; }
  constexpr bool involves(const BucketType& bucket, bool second_hops = true) const {
    for (const Operation& o : in_flight_)
      if (o.bucket == &bucket && (second_hops || !o.is_second)) return true;
    return false;
  }

  /// Starts to gather a bucket of split values; the result is valid once complete.
  /// `waits`: until there is room.
  constexpr StorageType start_gather(BucketType& b, bool waits = true);
  /// The same ahead of its use, if may_gather_ahead(bytes).
  constexpr StorageType start_gather_ahead(BucketType& b, Size bytes) {
    StorageType gathered = start_gather(b, false);
    ahead_bytes_ += bytes;
    in_flight_.back().is_ahead = true, ++gathers_ahead_;
    return gathered;
  }
  /// Starts to gather updated slices into resident values, when nothing else is in flight.
  constexpr void start_refresh(BucketType& b);
  /// Whether that goes on beside what comes next, in any number, until complete_refresh(b) or complete_all().
  constexpr bool refreshes_beside() const { return refreshes_beside_; }
  /// The bytes that this rank gives to it.
  constexpr Size refresh_bytes(const BucketType& b) const { return slice_of(b) * static_cast<Size>(sizeof(T)); }
  /// With all that were started before it.
  constexpr void complete_refresh(const BucketType& b) {
    if (refreshing_ > 0) complete_refreshes_until(b);
  }
  /// Starts to reduce the bucket's gradient over the replicas, or those of a node if shards are cut over them: in
  /// place, or to slices, adding to the reduced gradient.
  constexpr void start_reduce(BucketType& b);
  /// Before a step: starts to sum the reduced gradient over the ranks with this rank's shard, if there are others.
  constexpr void start_sum_over_copies(BucketType& b);

 private:
  static constexpr int limit = 2;
  static constexpr Size most_bytes = std::numeric_limits<Size>::max();
  static constexpr int most_gathers_ahead = 8;  ///< a transport has room for 16 operations in flight
  /// What an operation in two hops, of quantized parts or of values on a disk has besides; kept until it completes. In
  /// a list of their own, since few operations have one, and all are moved often.
  struct Hop {
    StorageType source{};            ///< that is read
    StorageType secondary{};         ///< gathered across nodes first, from which the node gathers `kept`
    StorageType sent{}, received{};  ///< quantized parts; of a gather both are `received`
    QuantizedParts parts{};
  };
  struct Operation {
    BucketType* bucket = nullptr;
    StorageType kept{};     ///< kept until the operation completes
    StorageType summand{};  ///< added to the bucket's reduced gradient at completion
    Pending<> pending{};    ///< declared after the storage: destroyed, and so completed, before it
    double arrives = 0;     ///< by the clock
    bool scatters = false;
    bool has_hop = false;    ///< the first of `hops_`, when this is the first in flight
    bool is_ahead = false;   ///< a gather that takes no room of others
    bool is_second = false;  ///< hop of a reduction; takes none, either
    Pending<> gathering{};   ///< the second of an all-reduce in two operations, completed after `pending`
  };
  /// Of values that are updated: no more than an Operation needs, since every bucket of a step may have one.
  struct Refresh {
    const BucketType* bucket = nullptr;
    Pending<> pending{};
    double arrives = 0;  ///< by the clock
  };
  /// What quantization lost of a bucket's gradient: of the rank's own, and of its node's slices.
  struct Errors {
    StorageType own{}, of_node{};
  };
  constexpr void zero_errors() {
    errors_are_old_ = false, steps_with_errors_ = 0;
    for (Errors& errors : errors_)
      for (StorageType* storage : {&errors.own, &errors.of_node})
        if (*storage) zero_bytes<D>(*storage, 0, storage->bytes());
  }
  constexpr void give_up_step() {
    abandon();
    memory_->abandon_step();
  }
  /// Null if they are not kept.
  template <class G>
  constexpr G* errors_of(const BucketType& b, StorageType Errors::*which) const {
    return errors_.empty() ? nullptr : (errors_[block_of(b)].*which).template element<G>(0);
  }
  static constexpr std::size_t block_of(const BucketType& b) { return static_cast<std::size_t>(b.number - 1); }
  constexpr void open_files() {
    Memory<D>* const of_windows = imitates_host<D> ? memory_ : host_;
    if (values_are_on_disk()) values_.open(*of_windows, config_.offload);
    if (config_.activations == Tier::disk) inputs_.open(*memory_, *of_windows, config_.offload);
  }
  constexpr bool shards_within_node() const { return config_.traffic.shards_within_node; }
  constexpr bool keeps_secondary_shards() const { return config_.traffic.secondary_shards && nodes() > 1; }
  constexpr Subject subject(const BucketType& b) const { return {b.number, micro_step_}; }
  /// f(g) with a value of the gradients' type.
  template <class F>
  constexpr void with_gradient_type(F f) const {
    config_.wide_gradients ? f(Compute<T>()) : f(T());
  }
  /// Quantized gradients travel inside of nodes, then across them.
  constexpr bool reduces_twice() const { return nodes() > 1 && nodes() < group().size(); }
  constexpr bool quantizes_gradients() const { return config_.traffic.reduce_bits > 0 && group().size() > 1; }
  static constexpr Buffer byte_range(const StorageType& storage, Size begin, Size count) {
    return {detail::byte_of<D>(storage, begin), count, ElementType::u8};
  }
  constexpr double flops_done() const {
    if constexpr (requires { memory_->flops_forward(); })
      return memory_->flops_forward() + memory_->flops_backward();
    else
      return 0;
  }
  constexpr Size bytes_moved() const {
    const auto by = [](CommunicatorOf<D>& group) {
      return group.traffic().bytes(Purpose::parameter) + group.traffic().bytes(Purpose::gradient);
    };
    return by(*groups_.all) + (nodes() > 1 ? by(*groups_.on_node) + by(*groups_.across_nodes) : 0);
  }
  constexpr double time_of_new_bytes() {
    const Size before = std::exchange(counted_, bytes_moved());
    return clock_.begin(flops_done(), counted_ - before);
  }
  constexpr void time_newest() { in_flight_.back().arrives = time_of_new_bytes(); }
  constexpr void complete_refreshes_until(const BucketType& b);
  constexpr void complete_oldest_refresh();
  constexpr const StorageType& slice_for_sum(BucketType& b, StorageType& summand);
  constexpr void start_all_reduce(BucketType& b);
  constexpr void start_quantized_reduce(BucketType& b, PurposeAt purpose);
  constexpr void start_second_hop(Operation& o, Hop hop);
  constexpr void sum_received(const Operation& o, const Hop& hop);
  constexpr void start_gather_in_hops(BucketType& b, const StorageType& whole);
  constexpr Pending<> gather_quantized(CommunicatorOf<D>& over, const Tensor<T, 1, D>& values, Hop& hop,
                                       PurposeAt purpose);
  constexpr Pending<> gather_on_node(BucketType& b, const StorageType& secondary, const StorageType& whole);
  constexpr void complete_oldest();
  constexpr bool complete_hop(Operation& o, Hop hop);
  constexpr void check_scatter(const Operation& o);
  constexpr void tell_of(const Operation& o);
  constexpr void add_summand(const Operation& o);
  constexpr void check_reduction(BucketType& b, const StorageType& whole, const StorageType& sum);

  Memory<D>* memory_;
  Memory<D>* host_ = nullptr;
  ReplicaGroups<D> groups_;
  CommunicatorOf<D>* shards_;
  ReplicaConfig config_;
  OffloadFile<D> values_{{Category::parameters, "window of offloaded values"}};
  KeptInputFile<D> inputs_;
  OffloadDivision divided_{config_.offload.parameters};
  List<Operation> in_flight_;
  List<Hop> hops_;                                                ///< of those of them that have one
  List<Refresh> refreshes_;                                       ///< of the last step; older than what is in flight
  std::size_t refreshing_ = 0;                                    ///< the last ones, which are not complete
  bool reduces_late_ = rule().gradients == Lifetime::until_step;  ///< but for units, see begin_backward()
  bool is_async_ = detail::has_async_progress(*shards_, most_bytes);
  bool refreshes_beside_ = is_async_ && config_.traffic.overlaps && shards_->size() > 1 &&
                           rule().optimizer_is_split() && !rule().values_are_split();
  List<Errors> errors_;         ///< by the buckets' numbers, under LoCo
  Size steps_with_errors_ = 0;  ///< since they were 0
  bool errors_are_old_ = true, is_timed_ = false, reduces_units_ = false;
  ReductionCheck check_ = ReductionCheck::none;
  ReductionPrints<D> prints_;
  int most_of_next_unit_ = config_.traffic.overlaps ? limit : 0;
  int buckets_ = 0, gathers_ahead_ = 0, second_hops_ = 0;
  Size ahead_bytes_ = 0, counted_ = 0;  ///< of values gathered and not used; whose time the clock has
  bool gathers_in_hops_ = keeps_secondary_shards() || config_.traffic.gather_bits > 0 || values_are_on_disk();
  OverlapClock clock_{};
  CurrentMicroStep current_{};
  std::int64_t micro_step_ = 0;
  OnReduced<T, D>* on_reduced_ = nullptr;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class T, Device D>
constexpr Replicas<T, D>::Replicas(Memory<D>& memory, Memory<D>* host, const ReplicaGroups<D>& groups,
                                   const ReplicaConfig& config)
    : memory_(&memory),
      host_(host),
      groups_(groups),
      shards_(config.traffic.shards_within_node ? groups.on_node : groups.all),
      config_(config) {
  const bool fits = groups.on_node->size() * groups.across_nodes->size() == groups.all->size();
  // clang-format off
  require(fits || !config.traffic.needs_nodes(), "dspp: Shards<Within<Node>>, SecondaryShards and ReduceAs need as many ranks on each node, in a row, but they differ. Start as many.",
          ErrorCode::placement, {{"replicas", groups.all->size()}});
  // clang-format on
  open_files();
}

template <class T, Device D>
constexpr Storage<Memory<D>> Replicas<T, D>::start_gather(BucketType& b, bool waits) {
  if (waits) make_room();
  const Shape<1> whole{{b.count}};
  auto gathered = Tensor<T, 1, D>::uninitialized(whole, *memory_, Category::parameters, "gathered parameters");
  if (gathers_in_hops_) {
    start_gather_in_hops(b, gathered.storage());
    return gathered.storage();
  }
  auto pending =
      shards().start_all_gather(buffer(static_cast<const T*>(b.values.data()), b.values.count()),
                                buffer(gathered.data(), b.count), PurposeAt(Purpose::parameter).of(subject(b)));
  in_flight_.push_back(Operation{.bucket = &b, .kept = gathered.storage(), .pending = std::move(pending)});
  if (is_timed_) time_newest();
  return gathered.storage();
}

template <class T, Device D>
constexpr void Replicas<T, D>::start_refresh(BucketType& b) {
  if (!refreshes_beside_)
    make_room();
  else if (refreshing_ == 0)  // the list is that of this step from now on
    refreshes_.clear();
  const Range own = owned(b);
  const T* slice = b.values.data_from(own.begin);
  auto pending = shards().start_all_gather(buffer(slice, own.count()), buffer(b.values.data(), b.count),
                                           PurposeAt(Purpose::parameter).of(subject(b)));
  if (refreshes_beside_) {
    refreshes_.push_back(Refresh{&b, std::move(pending), is_timed_ ? time_of_new_bytes() : 0}), ++refreshing_;
    return;
  }
  in_flight_.push_back(Operation{.bucket = &b, .kept = b.values.storage(), .pending = std::move(pending)});
  if (is_timed_) time_newest();
}

/// In place. In two operations, this rank first reduces its slice of the bucket, as under stages 1 to 3.
template <class T, Device D>
constexpr void Replicas<T, D>::start_all_reduce(BucketType& b) {
  if (is_async_) make_room();  // else to wait would gain nothing
  const Buffer whole = gradient_buffer(b.gradient, b.count);
  const auto purpose = PurposeAt(Purpose::gradient).of(subject(b));
  Operation reduce{.bucket = &b, .kept = std::exchange(b.gradient, {})};
  if (b.reduced)
    reduce.summand = reduce.kept;  // of gradients that were written behind a reduction
  else
    b.reduced = reduce.kept;
  if (sums_in_rank_order()) {
    reduce.pending = group().start_all_reduce(whole, purpose);
    in_flight_.push_back(std::move(reduce));
    if (is_timed_) time_newest();
    return;
  }
  const Size elements = b.count / group().size();
  const Buffer own{detail::byte_of<D>(reduce.kept, gradient_bytes(elements) * group().rank()), elements,
                   gradient_type()};
  reduce.pending = group().start_reduce_scatter(whole, own, purpose);
  in_flight_.push_back(std::move(reduce));
  in_flight_.back().gathering = group().start_all_gather(own, whole, purpose);
  if (is_timed_) time_newest();
}

/// Memory for this rank's slice of a sum: the reduced gradient if there is none yet, else `summand`.
template <class T, Device D>
constexpr const Storage<Memory<D>>& Replicas<T, D>::slice_for_sum(BucketType& b, StorageType& summand) {
  const bool first = !b.reduced;
  StorageType& sum = first ? b.reduced : summand;
  sum = StorageType(first ? *b.resting : *memory_, slice_bytes(b),
                    first ? Category::gradients : Category::communication, "reduced gradients");
  return sum;
}

template <class T, Device D>
constexpr void Replicas<T, D>::start_reduce(BucketType& b) {
  if (rule().reduce == Move::all_reduce) return start_all_reduce(b);
  make_room();
  const Buffer whole = gradient_buffer(b.gradient, b.count);
  if (checks_reductions()) complete(b);  // a bucket has one digest of a sum
  if (quantizes_gradients()) return start_quantized_reduce(b, PurposeAt(Purpose::gradient).of(subject(b)));
  const auto purpose = PurposeAt(Purpose::gradient).of(subject(b)).with_digest(checks_reductions() ? &b.sum : nullptr);
  b.sum = {};
  StorageType summand;
  const StorageType& sum = slice_for_sum(b, summand);
  auto pending = shards().start_reduce_scatter(whole, gradient_buffer(sum, slice_of(b)), purpose);
  in_flight_.push_back(Operation{.bucket = &b,
                                 .kept = std::exchange(b.gradient, {}),
                                 .summand = std::move(summand),
                                 .pending = std::move(pending),
                                 .scatters = true});
  if (is_timed_) time_newest();
}

template <class T, Device D>
constexpr void Replicas<T, D>::start_sum_over_copies(BucketType& b) {
  if (copies() == 1) return;
  make_room();
  const Buffer own = gradient_buffer(b.reduced, slice_of(b));
  auto pending = groups_.across_nodes->start_all_reduce(own, PurposeAt(Purpose::gradient).of(subject(b)));
  in_flight_.push_back(Operation{.bucket = &b, .kept = b.reduced, .pending = std::move(pending)});
  if (is_timed_) time_newest();
}

}  // namespace dspp

#include <dspp/zero/replica_completion.hpp>
#include <dspp/zero/replica_hops.hpp>
