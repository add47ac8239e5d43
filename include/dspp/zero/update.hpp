// SPDX-License-Identifier: Apache-2.0
/// The optimizer's update of a bucket, as ranges of the flat shard.
#pragma once

#include <dspp/optim/optimizer.hpp>
#include <dspp/zero/sharded_state.hpp>

namespace dspp {

namespace detail {
template <class G, class Optimizer, class T, Device D>
constexpr void update_parts(const Optimizer& optimizer, const BucketShard<T, D>& shard, Memory<D>& memory,
                            const UpdateScalars& scalars) {
  const auto parts = [&](auto update) {
    shard.bucket.for_each_part(shard.own, [&](const ParameterBase<D>& p, Size begin, Size end) {
      const Size at = begin - shard.own.begin;
      FlatRange<T, G, Compute<T>> range{
          .gradient = shard.template gradient<G>(at), .parameter = shard.values.data_from(at), .count = end - begin};
      if (shard.state.master) range.master = shard.state.master.data_from(at);
      for (int i = 0; i < Optimizer::moment_count; ++i) range.moments[i] = shard.state.moments[i].data_from(at);
      update(range, p.decays);
    });
  };
  update_ranges<T, G, Compute<T>, D>(memory, optimizer, parts, scalars);
}
}  // namespace detail

/// One fused pass over this rank's shard of a bucket, parameter by parameter.
template <class Optimizer, class T, Device D>
constexpr void update_bucket(const Optimizer& optimizer, Bucket<T, D>& b, ShardedState<T, D>& state,
                             const UpdateScalars& scalars) {
  const Replicas<T, D>& replicas = state.replicas();
  const BucketShard<T, D> shard = state.shard(b);
  if constexpr (!std::is_same_v<T, Compute<T>>) {
    if (replicas.config().wide_gradients) {
      detail::update_parts<Compute<T>>(optimizer, shard, replicas.memory(), scalars);
      return;
    }
  }
  detail::update_parts<T>(optimizer, shard, replicas.memory(), scalars);
}

}  // namespace dspp
