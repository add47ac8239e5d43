// SPDX-License-Identifier: Apache-2.0
/// Updates of buckets by an optimizer that asks for the norms of whole parameters.
#pragma once

#include <dspp/ops/update_by_norms.hpp>
#include <dspp/optim/optimizer.hpp>
#include <dspp/zero/sharded_state.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

namespace detail {

/// A pair of sums for each part that the slices of a bucket cut a parameter into. The parts, and so their sums, are the
/// same under every stage.
struct SlicedParameter {
  Size first_slice = 0, slices = 0;
};
template <class T, Device D>
constexpr SlicedParameter slices_of(const Bucket<T, D>& b, const ParameterBase<D>& p, Size replicas) {
  const Size length = b.count / replicas, first = p.offset / length;
  return {first, (p.offset + p.count() - 1) / length - first + 1};
}

/// Calls f(bucket, parameter, slices, pairs before it) for every parameter that is trained.
template <class T, Device D, class F>
constexpr Size for_each_sliced(const List<Unit<T, D>*>& units, Size replicas, F f) {
  Size pairs = 0;
  for (Unit<T, D>* unit : units)
    for (Bucket<T, D>& b : unit->trained_buckets())
      for (const ParameterBase<D>* p : b.parameters) {
        const SlicedParameter sliced = slices_of(b, *p, replicas);
        f(b, *p, sliced, pairs);
        pairs += sliced.slices;
      }
  return pairs;
}

/// Calls f(null), for all buckets at once; where their state is on a disk, f(&bucket) for each that is fetched, before
/// which paper fetches it, too.
template <class T, Device D, class F>
constexpr void for_each_in_reach(const List<Unit<T, D>*>& units, ShardedState<T, D>& state, bool to_update, F f) {
  if (state.store().tier() != Tier::disk) return f(static_cast<Bucket<T, D>*>(nullptr));
  for (Unit<T, D>* unit : units)
    for (Bucket<T, D>& b : unit->trained_buckets()) {
      to_update ? state.shard_to_update(b) : state.shard(b);
      f(&b);
    }
}

/// Calls f(range, settings, pair) for every part of a parameter that this rank owns, one slice after the other.
template <class G, class T, Device D, class F>
constexpr void for_each_owned_slice(ShardedState<T, D>& state, const BucketShard<T, D>& shard,
                                    const ParameterBase<D>& p, const SlicedParameter& sliced, int moments, F f) {
  Bucket<T, D>& b = shard.bucket;
  const int replicas = state.replicas().shards().size();
  for (Size i = 0; i < sliced.slices; ++i) {
    const Range part = common(common(b.slice(static_cast<int>(sliced.first_slice + i), replicas), shard.own),
                              {p.offset, p.offset + p.count()});
    if (part.count() > 0) f(shard.template range<G>(part.begin, part.end, moments), p.update_settings(), i);
  }
}

/// The squares of whole parameters and their updates, summed over slices and Tp: a pair per parameter, by number.
template <class G, class T, Device D, class Optimizer>
constexpr Tensor<double, 1, D> squares_of_parameters(const List<Unit<T, D>*>& units, const Optimizer& optimizer,
                                                     ShardedState<T, D>& state, const UpdateScalars& scalars,
                                                     const double* step, CommunicatorOf<D>& tp) {
  auto& replicas = state.replicas();
  Memory<D>& memory = replicas.memory();
  const int slices = replicas.shards().size();
  const auto zeros = [&](Size pairs) {
    return Tensor<double, 1, D>::zeros(shape(2 * pairs), memory, Category::communication, "norms of parameters");
  };
  Size count = 0;  // of parameters, pieces and frozen ones counted
  for (Unit<T, D>* unit : units) count += static_cast<Size>(unit->parameters().size());
  const auto parts = zeros(for_each_sliced(units, slices, [](auto&&...) {}));
  for_each_in_reach(units, state, false, [&](const Bucket<T, D>* only) {
    add_update_squares<T, G, Compute<T>, D>(
        memory, optimizer,
        [&](auto add) {
          for_each_sliced(units, slices, [&](auto& b, const auto& p, const auto& sliced, Size before) {
            if (only && &b != only) return;
            for_each_owned_slice<G>(state, state.shard(b), p, sliced, Optimizer::moment_count,
                                    [&](const auto& range, const auto& settings, Size i) {
                                      add(range, settings, parts.data_from(2 * (before + i)));
                                    });
          });
        },
        scalars, step);
  });
  if (replicas.rule().optimizer_is_split() && slices > 1)
    all_reduce(replicas.shards(), buffer(parts.data(), parts.count()), Purpose::scalar);
  const auto of_ranks = zeros(count * tp.size());
  const auto own = of_ranks.data_from(2 * count * tp.rank());
  add_pairs<D>(memory, [&](auto add) {
    for_each_sliced(units, slices, [&](auto&, const auto& p, const auto& sliced, Size before) {
      add(sliced.slices, 2, parts.data_from(2 * before), own + 2 * p.named().number);
    });
  });
  if (tp.size() == 1) return of_ranks;
  all_gather(tp, buffer(static_cast<const double*>(own), 2 * count), buffer(of_ranks.data(), of_ranks.count()),
             Purpose::scalar);
  const auto squares = zeros(count);
  add_pairs<D>(memory, [&](auto add) {
    for_each_sliced(units, slices, [&](auto&, const auto& p, const auto&, Size) {
      if (p.piece > 0) return;
      const bool cut = p.cut.dimension >= 0;
      const Size at = 2 * p.number;
      add(cut ? tp.size() : 1, 2 * count, static_cast<const double*>(of_ranks.data_from(at)), squares.data_from(at));
    });
  });
  return squares;
}

template <class G, class T, Device D, class Optimizer>
constexpr void update_typed_units_by_norms(const List<Unit<T, D>*>& units, const Optimizer& optimizer,
                                           ShardedState<T, D>& state, const UpdateScalars& scalars, const double* step,
                                           CommunicatorOf<D>& tp) {
  const auto squares = squares_of_parameters<G>(units, optimizer, state, scalars, step, tp);
  for_each_in_reach(units, state, true, [&](const Bucket<T, D>* only) {
    const auto ranges = [&](auto update) {
      for_each_sliced(units, state.replicas().shards().size(), [&](auto& b, const auto& p, const auto& sliced, Size) {
        if (only && &b != only) return;
        for_each_owned_slice<G>(state, state.shard_to_update(b), p, sliced, Optimizer::moment_count,
                                [&](const auto& range, const auto& settings, Size) {
                                  update(range, settings,
                                         static_cast<const double*>(squares.data_from(2 * p.named().number)));
                                });
      });
    };
    update_by_norms<T, G, Compute<T>, D>(state.replicas().memory(), optimizer, ranges, scalars, step);
  });
}

}  // namespace detail

/// Updates all units by an optimizer with direction() and ratio(), unless `step`, the StepScalars, holds another
/// verdict. Stages share their bits.
///
/// Cost     two passes over this rank's shards; under split optimizers an all-reduce over the replicas of 16 bytes per
///          parameter and slice, and over Tp an all-gather of 16 bytes per parameter, also in a skipped step
template <class T, Device D, class Optimizer>
constexpr void update_units_by_norms(const List<Unit<T, D>*>& units, const Optimizer& optimizer,
                                     ShardedState<T, D>& state, const UpdateScalars& scalars, const double* step,
                                     CommunicatorOf<D>& tp) {
  if constexpr (!std::is_same_v<T, Compute<T>>)
    if (state.replicas().config().wide_gradients)
      return detail::update_typed_units_by_norms<Compute<T>>(units, optimizer, state, scalars, step, tp);
  detail::update_typed_units_by_norms<T>(units, optimizer, state, scalars, step, tp);
}

}  // namespace dspp
