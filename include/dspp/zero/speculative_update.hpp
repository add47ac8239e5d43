// SPDX-License-Identifier: Apache-2.0
/// Updates that begin in backward, before a step knows what it does: of a policy with Speculative.
#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/ops/step_verdict.hpp>
#include <dspp/tensor/lane.hpp>
#include <dspp/zero/lane_update.hpp>
#include <dspp/zero/replicas.hpp>
#include <dspp/zero/state_store.hpp>

namespace dspp {

/// For each bucket that is trained another place for this rank's values and state, where updates are done ahead. Until
/// they are taken over, values and state are those of before.
template <class T, Device D>
class SpeculativeUpdate final : public OnReduced<T, D> {
 public:
  using State = Compute<T>;
  using BucketType = Bucket<T, D>;

  constexpr explicit SpeculativeUpdate(Replicas<T, D>& replicas) : replicas_(&replicas) {}
  SpeculativeUpdate(const SpeculativeUpdate&) = delete;
  SpeculativeUpdate& operator=(const SpeculativeUpdate&) = delete;
  constexpr ~SpeculativeUpdate() { drop(); }

  /// Of a bucket that is trained, in order of their numbers; `own`: its state, which is in memory.
  ///
  /// Memory   the owned elements' values and state
  constexpr void add(BucketType& b, const OptimizerState<State, D>& own) {
    const Shape<1> owned{{replicas_->owned(b).count()}};
    parts_.push_back({&b,
                      Tensor<T, 1, D>::uninitialized(owned, *b.resting, Category::parameters, "values ahead"),
                      {like(own.master), {like(own.moments.first), like(own.moments.second)}}});
    if (!assumed_)
      assumed_ = Tensor<double, 1, D>::zeros(shape(StepScalars::count), replicas_->memory(), Category::optimizer,
                                             "an assumed step");
  }
  constexpr bool is_used() const { return !parts_.empty(); }

  /// From now on the update of a bucket begins with its reduced gradient, if `may` and the last step's could have been
  /// taken over. shard(b) is the BucketShard of a bucket. Number and learning rate of the update are in `scalars`.
  template <class Optimizer, class ShardOf>
  constexpr void begin(bool may, const Optimizer& optimizer, ShardOf shard, const UpdateScalars& scalars,
                       double loss_scale) {
    drop();
    scalars_ = scalars, factor_ = 1 / loss_scale;
    if (__builtin_is_constant_evaluated() || !may || !last_held_) return;
    assume(StepScalars::gradient_scale, factor_);
    assume(StepScalars::verdict, static_cast<double>(StepVerdict::update));
    work_.get_or_make() = [this, optimizer, shard](Part& part) {
      if constexpr (!std::is_same_v<T, State>)
        if (replicas_->config().wide_gradients) return work<State>(part, optimizer, shard);
      return work<T>(part, optimizer, shard);
    };
    replicas_->set_on_reduced(this);
    is_under_way_ = true;
  }

  /// The gradient of a bucket is complete, as far as this backward goes. What throws is no error of the backward: the
  /// step updates as without.
  void reduced(BucketType& b) noexcept override {
    Part* const part = part_of(b);
    if (part == nullptr) return;
    or_drop([&] {
      lane_.start(replicas_->memory(), [&] { return (*work_)(*part); });
      part->is_begun = true;
    });
  }
  /// It changes once more.
  void changes(BucketType& b) noexcept override {
    Part* const part = part_of(b);
    if (part == nullptr || !part->is_begun) return;
    part->is_begun = false;
    or_drop([&] { lane_.wait(); });
  }

  /// Ends the updates ahead, of a step that has these StepScalars. The host waits for those.
  constexpr void judge(const Tensor<double, 1, D>& step) {
    replicas_->set_on_reduced(nullptr);
    step.read([&](const auto* host) {
      holds_ = host[StepScalars::gradient_scale] == factor_ &&
               host[StepScalars::verdict] == static_cast<double>(StepVerdict::update);
    });
    if (is_under_way_) lane_.wait();
    is_under_way_ = false;
  }
  /// After judge(), in an update of these scalars: of buckets that were updated ahead by them values and state are
  /// taken over, and update(bucket, true) is called if ranks of Tp have added to gradients of some of its parameters
  /// since; for others update(bucket, false). `state(b)` is a bucket's.
  template <class StateOf, class Update>
  constexpr void finish(const UpdateScalars& scalars, StateOf state, Update update) {
    last_held_ = holds_ && scalars.step == scalars_.step && scalars.lr == scalars_.lr;
    for (Part& part : parts_) {
      if (!last_held_ || !part.is_begun) {
        update(*part.bucket, false);
        continue;
      }
      const auto owned = replicas_->owned_values(*part.bucket);
      copy_bytes<D>(owned.storage(), owned.offset() * static_cast<Size>(sizeof(T)), part.values.storage(), 0,
                    part.values.bytes());
      std::swap(state(*part.bucket), part.state);
      bool any_late = false;
      for (const ParameterBase<D>* p : part.bucket->parameters) any_late |= p->partial_over_tp();
      if (any_late) update(*part.bucket, true);
      ++taken_over_;
    }
    forget();
  }
  /// Nothing was begun. Waits for what is under way, whatever comes of it.
  constexpr void drop() {
    replicas_->set_on_reduced(nullptr);
    if (is_under_way_) lane_.end();
    forget();
  }
  /// How many buckets were updated ahead, of all steps.
  constexpr Size taken_over() const { return taken_over_; }

  /// While nothing is under way: what is kept for a bucket is in `values` and `state` from now on.
  constexpr void move(const BucketType& b, Memory<D>& values, Memory<D>& state) {
    Part* const part = part_of(b);
    if (part == nullptr) return;
    const auto move = [](auto& tensor, Memory<D>& to, Category category) {
      if (tensor && &tensor.memory() != &to)
        tensor = std::decay_t<decltype(tensor)>::uninitialized(tensor.shape(), to, category, "an update ahead");
    };
    move(part->values, values, Category::parameters);
    for (auto* tensor : {&part->state.master, &part->state.moments.first, &part->state.moments.second})
      move(*tensor, state, Category::optimizer);
  }

 private:
  struct Part {
    BucketType* bucket = nullptr;
    Tensor<T, 1, D> values;
    OptimizerState<State, D> state;
    bool is_begun = false;
  };

  static constexpr Tensor<State, 1, D> like(const Tensor<State, 1, D>& own) {
    if (!own) return {};
    return Tensor<State, 1, D>::uninitialized(own.shape(), own.memory(), Category::optimizer, "state ahead");
  }
  constexpr void assume(Size scalar, double value) {
    Tensor<double, 1, D>::view(assumed_.storage(), scalar, shape(1)).fill(value);
  }
  constexpr Part* part_of(const BucketType& b) {
    for (Part& part : parts_)
      if (part.bucket == &b) return &part;
    return nullptr;
  }
  template <class F>
  void or_drop(F f) noexcept {
    try {
      f();
    } catch (...) {
      drop();
    }
  }
  constexpr void forget() {
    is_under_way_ = false;
    for (Part& part : parts_) part.is_begun = false;
  }
  template <class G, class Optimizer, class ShardOf>
  std::function<void(Memory<D>&)> work(Part& part, const Optimizer& optimizer, const ShardOf& shard) {
    auto own = shard(*part.bucket);
    detail::LaneUpdate<T, G, D> update;
    update.copy(part.values, own.values);
    if (part.state.master) update.copy(part.state.master, own.state.master);
    for (int i = 0; i < Optimizer::moment_count; ++i) update.copy(part.state.moments[i], own.state.moments[i]);
    update.update(std::decay_t<decltype(own)>{*part.bucket, own.own, part.values, part.state}, Optimizer::moment_count,
                  true);
    return std::move(update).work(optimizer, scalars_, assumed_.data());
  }

  Replicas<T, D>* replicas_;
  List<Part> parts_;
  Tensor<double, 1, D> assumed_;  ///< StepScalars of a step that neither clips nor is skipped
  UpdateScalars scalars_;
  double factor_ = 1;  ///< of gradients, in such a step
  bool is_under_way_ = false;
  bool holds_ = false;     ///< of the step that was judged last
  bool last_held_ = true;  ///< the same, with number and learning rate
  Size taken_over_ = 0;
  AtRunTime<std::function<std::function<void(Memory<D>&)>(Part&)>> work_;
  Lane<D> lane_;  ///< last: its work uses the others
};

}  // namespace dspp
