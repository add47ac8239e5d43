// SPDX-License-Identifier: Apache-2.0
/// A rank's shard: the elements of every bucket that its optimizer updates, and their optimizer state.
#pragma once

#include <cstdint>
#include <exception>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/otherwise.hpp>
#include <dspp/comm/all_or_none.hpp>
#include <dspp/ops/step_verdict.hpp>
#include <dspp/optim/optimizer.hpp>
#include <dspp/zero/delayed_update.hpp>
#include <dspp/zero/materialize.hpp>
#include <dspp/zero/speculative_update.hpp>
#include <dspp/zero/state_store.hpp>
#include <dspp/zero/unit.hpp>
#include <dspp/zero/zenflow_update.hpp>

namespace dspp {

/// A rank's shard of one bucket: elements `own`. All views begin there.
template <class T, Device D>
struct BucketShard {
  Bucket<T, D>& bucket;
  Range own;
  Tensor<T, 1, D> values;
  OptimizerState<Compute<T>, D>& state;

  /// The reduced gradient from element `at`, as elements of G.
  template <class G>
  constexpr const G* gradient(Size at) const {
    return bucket.reduced.template element<const G>(at);
  }
  /// Elements [begin, end) of the bucket, which are among `own`, with the first `moments` moments.
  template <class G>
  constexpr FlatRange<T, G, Compute<T>> range(Size begin, Size end, int moments) const {
    return range(begin, end, moments, gradient<G>(begin - own.begin));
  }
  /// The same with other gradients.
  template <class G>
  constexpr FlatRange<T, G, Compute<T>> range(Size begin, Size end, int moments, const G* gradients) const {
    const Size at = begin - own.begin;
    FlatRange<T, G, Compute<T>> range{.gradient = gradients, .parameter = values.data_from(at), .count = end - begin};
    if (state.master) range.master = state.master.data_from(at);
    for (int i = 0; i < moments; ++i) range.moments[i] = state.moments[i].data_from(at);
    return range;
  }
};

/// The shards of a model's buckets, for updates, and their optimizer state, for checks and checkpoints.
template <class T, Device D>
class ShardedState {
 public:
  using State = Compute<T>;

  constexpr explicit ShardedState(Replicas<T, D>& replicas)
      : replicas_(&replicas),
        store_(replicas.memory(), replicas.host_memory(), replicas.config().optimizer, replicas.config().offload),
        delayed_(replicas),
        speculative_(replicas),
        zenflow_(replicas) {}

  /// Allocates the optimizer state of a bucket, none of a frozen one, in order of their numbers; masters
  /// start as the model's initial values.
  ///
  /// Memory   per owned element: a Compute<T> master where T is narrower, and `moments` moments
  [[gnu::noinline]] constexpr void add(Bucket<T, D>& b, int moments, std::uint64_t seed, int tp_rank) {
    if (b.frozen) return store_.add_none();
    const Range own = replicas_->owned(b);
    store_.add(own.count(), !std::is_same_v<T, State>, moments);
    fill_master(b, tp_rank, own, initial_source(seed));
  }

  constexpr Replicas<T, D>& replicas() const { return *replicas_; }
  constexpr const StateStore<State, D>& store() const { return store_; }
  /// The bytes of this rank's files.
  constexpr Size disk_bytes() const { return store_.disk_bytes() + replicas_->disk_bytes(); }
  /// Moments per parameter of a bucket.
  constexpr int moments(const Bucket<T, D>& b) { return store_.moments(index_of(b)); }
  /// The state of a bucket, to read until another bucket's is asked for.
  constexpr OptimizerState<State, D>& of(const Bucket<T, D>& b) { return wait(), store_.fetch(index_of(b)); }
  /// The same, to change until then.
  constexpr OptimizerState<State, D>& change(const Bucket<T, D>& b) { return wait(), store_.change(index_of(b)); }
  constexpr BucketShard<T, D> shard(Bucket<T, D>& b) {
    return {b, replicas_->owned(b), replicas_->owned_values(b), store_.fetch(index_of(b))};
  }
  /// The same within in_step(), to update values and state.
  constexpr BucketShard<T, D> shard_to_update(Bucket<T, D>& b) {
    if (store_.tier() != Tier::disk || !updates_) return shard(b);
    replicas_->values_are_on_disk() ? replicas_->change_values(b) : keep_values(b);
    return {b, replicas_->owned(b), replicas_->owned_values(b), change(b)};
  }

  /// Runs check(), which reads the state in a step of `scalars`, and update(), which updates it. Of state that is on a
  /// disk that counts on all ranks or on none: if it throws on one, values and state are what they were before, and
  /// every rank throws.
  ///
  /// Cost     of state on a disk, two numbers summed over `ranks` if there are several
  /// Memory   the same, the values of one bucket if they are not on a disk, too
  template <class Check, class Update>
  constexpr void in_step(CommunicatorOf<D>& ranks, const Tensor<double, 1, D>& scalars, Check check, Update update) {
    if (speculative_.is_used()) speculative_.judge(scalars);
    if (store_.tier() != Tier::disk) return check(), delayed_.finish(), update();
    OffloadFile<D>& of_values = replicas_->value_file();  // empty if they are in memory
    updates_ = true;
    scalars.read(
        [&](const auto* host) { updates_ = host[StepScalars::verdict] == static_cast<double>(StepVerdict::update); });
    const auto failures =
        Tensor<double, 1, D>::zeros(shape(2), replicas_->memory(), Category::communication, "failures");
    bool is_settled = false;  // else what could not be written stays, as outside of steps
    detail::Otherwise undo([&] {
      updates_ = false;
      if (is_settled) put_back_values();
    });
    AtRunTime<std::exception_ptr> thrown;
    try {
      settle();
      is_settled = true;
      store_.begin_step(), of_values.begin_step();
      check();
      store_.read_in_order(), of_values.read_in_order();
      update();
      keep_no_values();
      store_.write_all(), of_values.write_all();
    } catch (...) {
      thrown.get_or_make() = std::current_exception();
    }
    const auto of_state = store_.end_step(), of_file = of_values.end_step();
    require_no_failure(ranks, failures, of_state ? of_state : of_file, thrown);
    undo.cancel();
    updates_ = false;
    store_.keep(), of_values.keep();
    before_.free();
  }
  /// Before the first step, if the configuration keeps more than state between steps.
  ///
  /// Memory   that of a DelayedUpdate, SpeculativeUpdate or ZenFlowUpdate, if the policy asks for it; under LoCo the
  ///          errors of quantized gradients
  constexpr void prepare_steps(const List<Unit<T, D>*>& units, int tp) {
    for (Unit<T, D>* unit : units)
      for (Bucket<T, D>& b : unit->trained_buckets()) {
        if (replicas_->config().delay_after != never_delayed) delayed_.add(b);
        if (replicas_->config().speculates) speculative_.add(b, store_.fetch(index_of(b)));
        if (replicas_->config().selects_rows) zenflow_.add(b, store_.resting(index_of(b)));
        if (replicas_->config().traffic.feeds_errors_back) replicas_->add_errors(b);
      }
    if (replicas_->config().selects_rows) zenflow_.finish_adding(tp);
  }
  /// Whether the update of that number, from 1, runs beside the next step.
  constexpr bool delays(Size number) const { return delayed_.delays(number); }
  /// Begins an update that does: see DelayedUpdate.
  template <class Optimizer>
  constexpr void start_update(const Optimizer& optimizer, const UpdateScalars& scalars, const double* step) {
    delayed_.start(
        optimizer, [this](Bucket<T, D>& b) { return shard(b); }, scalars, step);
  }
  /// The update of a step under ZenFlow.
  template <class Optimizer>
  constexpr void update_rows(const Optimizer& optimizer, const UpdateScalars& scalars, const double* step,
                             CommunicatorOf<D>& tp) {
    zenflow_.step(
        optimizer, [this](Bucket<T, D>& b) { return shard(b); }, scalars, step, tp);
  }
  /// The updates that begin in backward.
  constexpr SpeculativeUpdate<T, D>& speculative() { return speculative_; }
  /// From now on, until the step, updates may begin as gradients are complete: see SpeculativeUpdate.
  template <class Optimizer>
  constexpr void begin_updates(bool may, const Optimizer& optimizer, const UpdateScalars& scalars, double loss_scale) {
    if constexpr (!detail::HasDirection<Optimizer, State> && !detail::asks_for_matrices<Optimizer>) {
      const auto shard_of = [this](Bucket<T, D>& b) { return shard(b); };
      speculative_.begin(may, optimizer, shard_of, scalars, loss_scale);
    }
  }
  /// Within in_step(), takes over what was updated ahead by these scalars, and calls update(bucket, late_alone) for the
  /// rest.
  template <class Update>
  constexpr void finish_updates(const UpdateScalars& scalars, Update update) {
    const auto state = [this](const Bucket<T, D>& b) -> auto& {
      return store_.fetch(index_of(b));
    };
    speculative_.finish(scalars, state, update);
  }
  /// Ends the update that a policy delays: values and state have it, and the next forward, too. Call on every rank.
  /// `between_steps`: nothing of a step uses the values.
  ///
  /// Cost     if one is under way, under stages 1 and 2, an all-gather of the values over the replicas
  constexpr void end_update(bool between_steps = true) {
    replicas_->complete_all();  // they may read the values: of a forward that threw
    speculative_.drop();
    if (!delayed_.is_under_way() && !zenflow_.waits()) return;
    // clang-format off
    require(between_steps, "dspp: Delayed<1> and ZenFlow need the end of a step for parameters to be read or set from outside, but one has begun, by a forward or a micro-step. End it first.",
            ErrorCode::state);
    // clang-format on
    const bool gathers = replicas_->rule().optimizer_is_split() && !replicas_->rule().values_are_split();
    const auto changed = [&](Bucket<T, D>& b) {
      b.secondary.release();
      if (gathers) replicas_->start_refresh(b);
    };
    if (delayed_.is_under_way()) delayed_.finish(), delayed_.for_each_bucket(changed);
    if (zenflow_.waits()) end_rounds(), zenflow_.for_each_bucket(changed);
    replicas_->complete_all();
  }
  /// Moves the state of a bucket to `memory`, or if that is null to where it rests, as StateStore does.
  constexpr void move(const Bucket<T, D>& b, Memory<D>* memory) {
    Memory<D>& of_state = memory ? *memory : store_.resting(index_of(b));
    wait(), store_.move(index_of(b), of_state);
    delayed_.move(b, memory ? *memory : *b.resting), zenflow_.move(b, of_state),
        speculative_.move(b, memory ? *memory : *b.resting, of_state);
  }
  /// Writes what was changed outside of steps, and releases the memory that reading took.
  constexpr void settle() {
    if (store_.tier() != Tier::disk) return;
    store_.settle(), replicas_->value_file().settle();
  }

  /// Fills the masters, if any, in elements `range` of the bucket from `source`, as write_values does.
  template <class Source>
  [[gnu::noinline]] constexpr void fill_master(const Bucket<T, D>& b, int tp_rank, Range range, const Source& source) {
    const Range own = replicas_->owned(b), part = common(own, range);
    if (std::is_same_v<T, State> || part.count() <= 0) return;
    if (const auto& master = change(b).master)
      write_values(b, part, tp_rank, source, replicas_->memory(), master.data_from(part.begin - own.begin));
  }
  /// How often all parameters were read from a file.
  constexpr Size loads() const { return loads_; }
  constexpr void note_load() { ++loads_; }
  [[gnu::noinline]] constexpr void clear_moments(Bucket<T, D>& b) {
    for (int i = 0; i < moments(b); ++i) change(b).moments[i].fill({});
  }

 private:
  /// A bucket's owned values before the step: of the bucket that is updated now in `values`, of those before it in
  /// their gradients, which are not read again.
  struct Before {
    Bucket<T, D>* bucket = nullptr;
    Storage<Memory<D>> values;
  };
  /// Nothing changes state or reads it but the rank's own operations.
  constexpr void wait() { speculative_.is_used() ? speculative_.drop() : (delayed_.wait(), zenflow_.wait()); }
  constexpr void end_rounds() {
    zenflow_.end([this](Bucket<T, D>& b) { return shard(b); });
  }
  static constexpr std::size_t index_of(const Bucket<T, D>& b) { return static_cast<std::size_t>(b.number - 1); }
  constexpr Size owned_bytes(const Bucket<T, D>& b) const {
    return replicas_->owned(b).count() * static_cast<Size>(sizeof(T));
  }
  constexpr void keep_values(Bucket<T, D>& b) {
    if (!before_.empty() && before_.back().bucket == &b) return;
    keep_no_values();
    const auto owned = replicas_->owned_values(b);
    Before before{&b, {replicas_->memory(), owned_bytes(b), Category::optimizer, "values before the step"}};
    copy_bytes<D>(before.values, 0, owned.storage(), owned.offset() * static_cast<Size>(sizeof(T)), owned_bytes(b));
    before_.push_back(std::move(before));
  }
  /// The last bucket's update has ended.
  constexpr void keep_no_values() {
    if (before_.empty() || !before_.back().values) return;
    Before& last = before_.back();
    copy_bytes<D>(last.bucket->reduced, 0, last.values, 0, owned_bytes(*last.bucket));
    last.values.release();
  }
  /// While an error is under way. A device that copies no more has failed for good, as the error says.
  constexpr void put_back_values() {
    try {
      for (Before& before : before_) {
        const auto owned = replicas_->owned_values(*before.bucket);
        copy_bytes<D>(owned.storage(), owned.offset() * static_cast<Size>(sizeof(T)),
                      before.values ? before.values : before.bucket->reduced, 0, owned_bytes(*before.bucket));
      }
    } catch (...) {
    }
    before_.free();
    store_.forget(), replicas_->value_file().forget();
  }
  /// Throws on every rank if a disk `refused` something of one, or one has `thrown`: the first is its own error where
  /// there is one, since it may be why others threw.
  constexpr void require_no_failure(CommunicatorOf<D>& ranks, const Tensor<double, 1, D>& failures,
                                    const AtRunTime<std::exception_ptr>& refused,
                                    const AtRunTime<std::exception_ptr>& thrown) {
    const bool fails = refused || thrown;
    if (fails) failures.fill(1);
    if (fails && !refused) Tensor<double, 1, D>::view(failures.storage(), 1, shape(1)).fill(0);
    bool any = fails, any_refused = false;
    try {
      if (ranks.size() > 1) all_reduce(ranks, buffer(failures.data(), 2), Purpose::scalar);
      failures.read([&](const auto* host) { any = host[0] > 0, any_refused = host[1] > 0; });
    } catch (...) {
      if (!fails) throw;
    }
    if (refused) std::rethrow_exception(*refused);
    if (thrown && !any_refused) std::rethrow_exception(*thrown);
    if (any)
      fail(ErrorCode::file,
           "dspp: a step with state on disks needs every rank, but another one failed, and nothing was updated on any. "
           "See that rank's error.");
  }

  Replicas<T, D>* replicas_;
  StateStore<State, D> store_;
  DelayedUpdate<T, D> delayed_;  ///< behind the store, whose state its work changes
  SpeculativeUpdate<T, D> speculative_;
  ZenFlowUpdate<T, D> zenflow_;  ///< the same
  List<Before> before_;
  bool updates_ = false;  ///< within in_step(), unless the step is skipped
  Size loads_ = 0;
};

/// The moments that an optimizer keeps of a parameter.
template <class Optimizer, Device D>
constexpr int moments_of(const ParameterBase<D>& p) {
  if (p.is_frozen()) return 0;
  if constexpr (detail::asks_for_matrices<Optimizer>)
    if (p.is_whole_matrix()) return Optimizer::matrix_moment_count;
  return Optimizer::moment_count;
}
/// The same of the parameters of a bucket.
template <class Optimizer, class T, Device D>
constexpr int moments_in(const Bucket<T, D>& b) {
  return moments_of<Optimizer>(*b.parameters[0]);
}

/// The optimizer state of a bucket; null if the holder has none, such as Weights.
template <class Holder, class B>
constexpr auto* optimizer_state(Holder& holder, const B& b) {
  if constexpr (requires { holder.state(); })
    return &holder.state().of(b);
  else
    return static_cast<OptimizerState<Compute<typename Holder::T>, typename Holder::D>*>(nullptr);
}

/// work(), which reads a holder's state or values: where they are on a disk, it succeeds on all ranks or fails on all.
template <class Holder, class F>
void read_state_as_it_is(Holder& holder, F work) {
  bool is_on_disk = holder.replicas().values_are_on_disk();
  if constexpr (requires { holder.state(); }) is_on_disk |= holder.state().store().tier() == Tier::disk;
  is_on_disk ? all_or_none(holder.world().host(), work) : work();
}

/// The same of state and values that have all updates.
template <class Holder, class F>
void read_state(Holder& holder, F work) {
  if constexpr (requires { holder.end_update(); }) holder.end_update();
  read_state_as_it_is(holder, work);
}

/// Writes what fill_parameters() changed, where values or state are on a disk.
template <class Holder>
constexpr void settle_files(Holder& holder) {
  if constexpr (requires { holder.state(); })
    holder.state().settle();
  else
    holder.replicas().value_file().settle();
}

/// Fills this rank's values and masters, if any, in elements `range` of a bucket from `source`. First completes
/// operations in flight, which may read the values: of a forward that threw.
template <class Holder, class B, class Source>
constexpr void fill_parameters(Holder& holder, B& b, Range range, const Source& source) {
  if constexpr (requires { holder.require_untrained(); }) holder.require_untrained();
  if constexpr (requires { holder.end_update(); }) holder.end_update();
  holder.replicas().complete_all();
  if (!__builtin_is_constant_evaluated())  // where values are set once, before any is gathered
    for (auto* unit : holder.units()) unit->forget_copies();
  const int tp_rank = holder.world().place().tp;
  fill_bucket(b, holder.replicas(), tp_rank, range, source);
  if constexpr (requires { holder.state(); }) holder.state().fill_master(b, tp_rank, range, source);
}

}  // namespace dspp
