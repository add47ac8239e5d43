// SPDX-License-Identifier: Apache-2.0
/// The optimizer's update of buckets, as ranges of the flat shard, and the exchange of updated values.
#pragma once

#include <dspp/optim/optimizer.hpp>
#include <dspp/zero/sharded_state.hpp>
#include <dspp/zero/unit.hpp>
#include <dspp/zero/update_by_norms.hpp>
#include <dspp/zero/update_matrices.hpp>

namespace dspp {

namespace detail {
template <class G, class Optimizer, class T, Device D>
constexpr void update_parts(const Optimizer& optimizer, const BucketShard<T, D>& shard, Memory<D>& memory,
                            const UpdateScalars& scalars, const double* step, bool late_alone) {
  const auto parts = [&](auto update) {
    shard.bucket.for_each_part(shard.own, [&](const ParameterBase<D>& p, Size begin, Size end) {
      if (!late_alone || p.partial_over_tp())
        update(shard.template range<G>(begin, end, Optimizer::moment_count), p.update_settings());
    });
  };
  update_ranges<T, G, Compute<T>, D>(memory, optimizer, parts, scalars, step);
}
}  // namespace detail

/// One fused pass over this rank's shard of a bucket, parameter by parameter. `step`: the StepScalars, of D.
/// `late_alone`: of those whose gradients ranks of Tp have added to in the step.
template <class Optimizer, class T, Device D>
constexpr void update_bucket(const Optimizer& optimizer, Bucket<T, D>& b, ShardedState<T, D>& state,
                             const UpdateScalars& scalars, const double* step, bool late_alone = false) {
  const Replicas<T, D>& replicas = state.replicas();
  const BucketShard<T, D> shard = state.shard_to_update(b);
  if constexpr (!std::is_same_v<T, Compute<T>>) {
    if (replicas.config().wide_gradients) {
      detail::update_parts<Compute<T>>(optimizer, shard, replicas.memory(), scalars, step, late_alone);
      return;
    }
  }
  detail::update_parts<T>(optimizer, shard, replicas.memory(), scalars, step, late_alone);
}

/// Updates all units, unless `step`, the StepScalars, holds another verdict; or begins to, if the policy delays this
/// update; or takes over what was updated ahead, which was judged. Call on every rank.
///
/// Cost     besides, that of update_units_by_norms or update_matrices if the optimizer asks for norms or matrices
template <class T, Device D, class Optimizer>
constexpr void update_units(const List<Unit<T, D>*>& units, const Optimizer& optimizer, ShardedState<T, D>& state,
                            const UpdateScalars& scalars, const double* step, CommunicatorOf<D>& tp) {
  for (Unit<T, D>* unit : units) unit->forget_copies();
  if constexpr (detail::HasDirection<Optimizer, Compute<T>>) {
    update_units_by_norms(units, optimizer, state, scalars, step, tp);
  } else {
    if constexpr (!detail::asks_for_matrices<Optimizer>) {
      if (state.delays(scalars.step)) return state.start_update(optimizer, scalars, step);
      if (state.replicas().config().selects_rows) return state.update_rows(optimizer, scalars, step, tp);
      if (state.replicas().config().speculates)
        return state.finish_updates(scalars, [&](Bucket<T, D>& b, bool late_alone) {
          update_bucket(optimizer, b, state, scalars, step, late_alone);
        });
    }
    for (Unit<T, D>* unit : units)
      for (Bucket<T, D>& b : unit->trained_buckets()) {
        if constexpr (detail::asks_for_matrices<Optimizer>)
          if (b.matrices) {
            update_matrices(optimizer, b, state, scalars, step, tp);
            continue;
          }
        update_bucket(optimizer, b, state, scalars, step);
      }
  }
}

/// Under stages 1 and 2, gathers the updated slices into every replica's values, also after a skipped step: traffic
/// does not depend on values. Where operations go on by themselves they are in flight when it returns, until the values
/// are read: the next forward computes beside them.
///
/// Cost     under stages 1 and 2 an all-gather of the values over the replicas
template <class T, Device D>
constexpr void refresh_units(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas) {
  if (!replicas.rule().optimizer_is_split() || replicas.rule().values_are_split()) return;
  // Large ones last, on all ranks: a progress thread that is woken for them goes on with the others, too.
  Size largest = 0;
  for (const bool large : {false, true})
    for (Unit<T, D>* unit : units)
      if (const Size bytes = unit->refresh(large); bytes > largest) largest = bytes;
  const bool go_on = detail::has_async_progress(replicas.shards(), largest);
  if (!replicas.refreshes_beside() || !go_on) replicas.complete_all();
}

}  // namespace dspp
