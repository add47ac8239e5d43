// SPDX-License-Identifier: Apache-2.0
/// An update that runs beside the next step: of a policy with Delayed<1>.
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include <dspp/base/list.hpp>
#include <dspp/base/otherwise.hpp>
#include <dspp/ops/step_verdict.hpp>
#include <dspp/tensor/lane.hpp>
#include <dspp/zero/lane_update.hpp>
#include <dspp/zero/replicas.hpp>

namespace dspp {

/// This rank's gradients of the last step, and the values that an update makes of them, until they are taken over.
template <class T, Device D>
class DelayedUpdate {
 public:
  constexpr explicit DelayedUpdate(Replicas<T, D>& replicas) : replicas_(&replicas) {}
  DelayedUpdate(const DelayedUpdate&) = delete;
  DelayedUpdate& operator=(const DelayedUpdate&) = delete;
  constexpr ~DelayedUpdate() { lane_.end(); }  // before its blocks are given back

  constexpr bool is_under_way() const { return is_under_way_; }
  /// Whether the update of that number, from 1, is delayed.
  constexpr bool delays(Size number) const {
    const Size after = replicas_->config().delay_after;
    return after != never_delayed && number > after;
  }

  /// Of a bucket that is trained, in order of their numbers.
  ///
  /// Memory   the owned elements' values and gradients
  constexpr void add(Bucket<T, D>& b) {
    parts_.push_back({&b, new_gradient(b, *b.resting), new_values(b, *b.resting)});
    if (!step_)
      step_ = Tensor<double, 1, D>::zeros(shape(StepScalars::count), replicas_->memory(), Category::optimizer,
                                          "a delayed step");
  }

  /// Begins the update by the reduced gradients, which it keeps; shard(b) is the BucketShard of a bucket. Its number
  /// and learning rate are in `scalars`; `step`: the StepScalars, of D.
  template <class Optimizer, class ShardOf>
  constexpr void start(const Optimizer& optimizer, ShardOf shard, const UpdateScalars& scalars, const double* step) {
    for (Part& part : parts_) part.gradient = part.bucket->reduced;
    const auto as_bytes = [](const double* numbers) { return reinterpret_cast<const std::byte*>(numbers); };
    D::copy(replicas_->memory(), detail::byte_of<D>(step_.storage(), 0), step ? as_bytes(step) : nullptr,
            step_.bytes());
    detail::Otherwise not_started([&] { lane_.end(); });
    lane_.start(replicas_->memory(), [&]() -> std::function<void(Memory<D>&)> {
      if constexpr (!std::is_same_v<T, Compute<T>>)
        if (replicas_->config().wide_gradients) return work<Compute<T>>(optimizer, shard, scalars);
      return work<T>(optimizer, shard, scalars);
    });
    not_started.cancel();
    is_under_way_ = true;
  }

  /// Masters and moments are those after the update from now on.
  constexpr void wait() {
    if (is_under_way_) lane_.wait();
  }
  /// Takes the values over. Under stages 1 and 2 they are to be gathered then.
  constexpr void finish() {
    if (!is_under_way_) return;
    wait();
    is_under_way_ = false;
    for (Part& part : parts_) {
      const auto owned = replicas_->owned_values(*part.bucket);
      copy_bytes<D>(owned.storage(), owned.offset() * static_cast<Size>(sizeof(T)), part.values.storage(), 0,
                    part.values.bytes());
    }
  }
  /// Calls f(bucket) for each that is trained.
  template <class F>
  constexpr void for_each_bucket(F f) {
    for (Part& part : parts_) f(*part.bucket);
  }

  /// While none is under way: what it keeps of a bucket is in `memory` from now on.
  constexpr void move(const Bucket<T, D>& b, Memory<D>& memory) {
    for (Part& part : parts_) {
      if (part.bucket != &b) continue;
      if (&part.gradient.memory() != &memory) part.gradient = new_gradient(b, memory);
      if (&part.values.memory() != &memory) part.values = new_values(b, memory);
    }
  }

 private:
  struct Part {
    Bucket<T, D>* bucket = nullptr;
    Storage<Memory<D>> gradient;  ///< of the last step
    Tensor<T, 1, D> values;       ///< of the next one
  };
  constexpr Storage<Memory<D>> new_gradient(const Bucket<T, D>& b, Memory<D>& memory) const {
    return {memory, replicas_->gradient_bytes(replicas_->owned(b).count()), Category::gradients, "delayed gradients"};
  }

  constexpr Tensor<T, 1, D> new_values(const Bucket<T, D>& b, Memory<D>& memory) const {
    const Shape<1> own{{replicas_->owned(b).count()}};
    return Tensor<T, 1, D>::uninitialized(own, memory, Category::parameters, "values of an update");
  }

  template <class G, class Optimizer, class ShardOf>
  std::function<void(Memory<D>&)> work(const Optimizer& optimizer, ShardOf& shard, const UpdateScalars& scalars) {
    detail::LaneUpdate<T, G, D> update;
    for (Part& part : parts_) {
      auto own = shard(*part.bucket);
      update.copy(part.values, own.values);
      own.values = part.values;
      update.update(own, Optimizer::moment_count);
    }
    return std::move(update).work(optimizer, scalars, step_.data());
  }

  Replicas<T, D>* replicas_;
  List<Part> parts_;
  Tensor<double, 1, D> step_;  ///< the StepScalars of the step whose update it is
  Lane<D> lane_;
  bool is_under_way_ = false;
};

}  // namespace dspp
