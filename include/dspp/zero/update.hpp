// SPDX-License-Identifier: Apache-2.0
/// The optimizer's state of a bucket, and its update: ranges of the flat shard.
#pragma once

#include <cstdint>

#include <dspp/optim/optimizer.hpp>
#include <dspp/zero/gradients.hpp>
#include <dspp/zero/materialize.hpp>

namespace dspp {

/// Fills the values with the model's initial ones and allocates masters and moments of the owned range.
///
/// Memory   per owned element: a Compute<T> master where T is narrower, and Optimizer::moment_count moments
template <class Optimizer, class T, Device D>
constexpr void allocate_state(Bucket<T, D>& b, Replicas<T, D>& replicas, std::uint64_t seed, int tp_rank) {
  using State = Compute<T>;
  const Range own = replicas.owned(b);
  const Shape<1> shape{{own.count()}};
  if constexpr (!std::is_same_v<T, State>) {
    b.master = Tensor<State, 1, D>::zeros(shape, replicas.memory(), Category::optimizer, "masters");
  }
  for (int i = 0; i < Optimizer::moment_count; ++i)
    b.moments[i] = Tensor<State, 1, D>::zeros(shape, replicas.memory(), Category::optimizer, "moments");
  if constexpr (D::real) fill_bucket(b, replicas, tp_rank, initial_source(seed));
}

namespace detail {
template <class G, class Optimizer, class T, Device D>
constexpr void update_parts(const Optimizer& optimizer, Bucket<T, D>& b, const Replicas<T, D>& replicas,
                            const UpdateScalars& scalars) {
  const auto parts = [&](auto update) {
    const Range own = replicas.owned(b);
    const Size values_begin = replicas.rule().values_are_split() ? own.begin : 0;
    b.for_each_part(own, [&](const ParameterBase<D>& p, Size begin, Size end) {
      const Size at = begin - own.begin;
      FlatRange<T, G, Compute<T>> range{.gradient = owned_gradient(b).template element<const G>(at),
                                        .parameter = b.values.data_from(begin - values_begin),
                                        .count = end - begin};
      if (b.master) range.master = b.master.data_from(at);
      for (int i = 0; i < Optimizer::moment_count; ++i) range.moments[i] = b.moments[i].data_from(at);
      update(range, p.decays);
    });
  };
  update_ranges<T, G, Compute<T>, D>(replicas.memory(), optimizer, parts, scalars);
}
}  // namespace detail

/// One fused pass over the owned range of a bucket, parameter by parameter.
template <class Optimizer, class T, Device D>
constexpr void update_bucket(const Optimizer& optimizer, Bucket<T, D>& b, const Replicas<T, D>& replicas,
                             const UpdateScalars& scalars) {
  if constexpr (!std::is_same_v<T, Compute<T>>) {
    if (replicas.config().wide_gradients) {
      detail::update_parts<Compute<T>>(optimizer, b, replicas, scalars);
      return;
    }
  }
  detail::update_parts<T>(optimizer, b, replicas, scalars);
}

}  // namespace dspp
