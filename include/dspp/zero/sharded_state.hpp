// SPDX-License-Identifier: Apache-2.0
/// A rank's shard: the elements of every bucket that its optimizer updates, and their optimizer state.
#pragma once

#include <cstdint>

#include <dspp/base/list.hpp>
#include <dspp/optim/optimizer.hpp>
#include <dspp/zero/materialize.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

/// Up to two moments. Not an array: nvcc does not destroy the elements of array members in constant expressions.
template <class State, Device D>
struct Moments {
  Tensor<State, 1, D> first, second;
  constexpr Tensor<State, 1, D>& operator[](int i) { return i == 0 ? first : second; }
};

/// The optimizer state of the owned elements of a bucket.
template <class State, Device D>
struct OptimizerState {
  Tensor<State, 1, D> master;  ///< if the values are narrower than State
  Moments<State, D> moments;
};

/// The optimizer state of every bucket, by number, in the device's memory.
template <class State, Device D>
class StateStore {
 public:
  /// Allocates the state of `elements` elements, zeroed.
  ///
  /// Memory   `moments` moments, and a master if `with_master`, of `elements` elements
  constexpr void add(Memory<D>& memory, Size elements, bool with_master, int moments) {
    OptimizerState<State, D> own;
    const Shape<1> extent{{elements}};
    if (with_master) own.master = Tensor<State, 1, D>::zeros(extent, memory, Category::optimizer, "masters");
    for (int i = 0; i < moments; ++i)
      own.moments[i] = Tensor<State, 1, D>::zeros(extent, memory, Category::optimizer, "moments");
    buckets_.push_back(std::move(own));
  }
  /// No state, for a bucket of frozen parameters.
  constexpr void add_none() { buckets_.push_back({}); }
  constexpr OptimizerState<State, D>& fetch(std::size_t bucket) { return buckets_[bucket]; }

 private:
  List<OptimizerState<State, D>> buckets_;
};

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
    const Size at = begin - own.begin;
    FlatRange<T, G, Compute<T>> range{
        .gradient = gradient<G>(at), .parameter = values.data_from(at), .count = end - begin};
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

  constexpr explicit ShardedState(Replicas<T, D>& replicas) : replicas_(&replicas) {}

  /// Allocates the optimizer state of a bucket, none of a frozen one, in order of their numbers; masters
  /// start as the model's initial values.
  ///
  /// Memory   per owned element: a Compute<T> master where T is narrower, and `moments` moments
  [[gnu::noinline]] constexpr void add(Bucket<T, D>& b, int moments, std::uint64_t seed, int tp_rank) {
    if (b.frozen) return store_.add_none();
    const Range own = replicas_->owned(b);
    store_.add(replicas_->memory(), own.count(), !std::is_same_v<T, State>, moments);
    fill_master(b, tp_rank, own, initial_source(seed));
  }

  constexpr Replicas<T, D>& replicas() const { return *replicas_; }
  /// Moments per parameter of a bucket.
  constexpr int moments(const Bucket<T, D>& b) {
    OptimizerState<State, D>& own = of(b);
    return static_cast<int>(static_cast<bool>(own.moments.first)) +
           static_cast<int>(static_cast<bool>(own.moments.second));
  }
  constexpr OptimizerState<State, D>& of(const Bucket<T, D>& b) {
    return store_.fetch(static_cast<std::size_t>(b.number - 1));
  }
  constexpr BucketShard<T, D> shard(Bucket<T, D>& b) {
    return {b, replicas_->owned(b), replicas_->owned_values(b), of(b)};
  }

  /// Fills the masters, if any, in elements `range` of the bucket from `source`, as write_values does.
  template <class Source>
  [[gnu::noinline]] constexpr void fill_master(const Bucket<T, D>& b, int tp_rank, Range range, const Source& source) {
    const Range own = replicas_->owned(b), part = common(own, range);
    const auto& master = of(b).master;
    if (master && part.count() > 0)
      write_values(b, part, tp_rank, source, replicas_->memory(), master.data_from(part.begin - own.begin));
  }
  /// How often all parameters were read from a file.
  constexpr Size loads() const { return loads_; }
  constexpr void note_load() { ++loads_; }
  [[gnu::noinline]] constexpr void clear_moments(Bucket<T, D>& b) {
    for (int i = 0; i < moments(b); ++i) of(b).moments[i].fill({});
  }

 private:
  Replicas<T, D>* replicas_;
  StateStore<State, D> store_;
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

/// Fills this rank's values and masters, if any, in elements `range` of a bucket from `source`. First completes
/// operations in flight, which may read the values: of a forward that threw.
template <class Holder, class B, class Source>
constexpr void fill_parameters(Holder& holder, B& b, Range range, const Source& source) {
  if constexpr (requires { holder.require_untrained(); }) holder.require_untrained();
  if constexpr (requires { holder.finish_step(); }) holder.finish_step();
  holder.replicas().complete_all();
  const int tp_rank = holder.world().place().tp;
  fill_bucket(b, holder.replicas(), tp_rank, range, source);
  if constexpr (requires { holder.state(); }) holder.state().fill_master(b, tp_rank, range, source);
}

}  // namespace dspp
